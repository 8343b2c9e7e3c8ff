package nestor_test

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	module        = "github.com/dfaf701a/nestor"
	newDependency = "one home per dependency, and a new one needs a commit that says why not fifty lines of ours"
)

// architecture is who may import whom. A failure here is a question about the
// design, docs/architecture.md: change the import first, the table last.
var architecture = rules{
	restricted: map[string]string{
		"os":             "what has no line for it is pure: tested without files, clocks or processes",
		"os/exec":        "a process is started where its whole tree is also ended: claude, workspace, sandbox, toolserver and the api provider's tools",
		"os/signal":      "signals belong to the command line; everybody else is given a context",
		"syscall":        "what differs by operating system stays in few files, beside what it serves",
		"net":            "sockets are opened by what serves or dials, never on the way",
		"net/http":       "HTTP is spoken at the edge",
		"database/sql":   "all SQL is in history",
		"expvar":         "it registers itself by being imported",
		"net/http/pprof": "it registers itself by being imported",
		"log":            "log/slog, through a logger in Options",
		"unsafe":         "nothing here is worth it",
		"C":              "one static binary: no cgo",
	},
	packages: map[string]pkg{
		".": {why: "the vocabulary knows nobody, and has no I/O"},
		"claude": {
			why: "the SDK is a library of its own: it imports nothing of ours",
			outside: allow{
				"os":                                     "",
				"os/exec":                                "it starts the CLI",
				"github.com/modelcontextprotocol/go-sdk": "tools that live in the caller's process",
				"github.com/google/jsonschema-go":        "schemas of results",
				"syscall":                                "how a file is opened without being led astray",
				"golang.org/x/text":                      "text as the CLI normalizes it",
			},
		},
		"claude/claudetest": {
			why:  "users of the SDK import it in their tests: it knows the SDK alone",
			ours: []string{"claude"},
			outside: allow{
				"os":                       "",
				"os/exec":                  "it runs the real CLI to record it",
				"os/signal":                "a fake CLI ignores signals",
				"syscall":                  "which are named there",
				"golang.org/x/tools/txtar": "transcripts are txtar files",
			},
		},
		"claude/claudetest/record": {
			why:  "a command for maintainers, which no user's binary holds",
			ours: []string{"claude", "claude/claudetest", "scriptmodel"},
			outside: allow{
				"os":        "",
				"os/signal": "Ctrl-C",
				"net":       "it serves the scripted model",
			},
		},
		"agent": {
			why:  "the contract knows nobody who keeps it, and speaks of conversations in the words of claude",
			ours: []string{"claude"},
			outside: allow{
				"github.com/modelcontextprotocol/go-sdk": "servers in this process are part of a config",
				"net":                                    "… and so is how what is in this process connects to hosts",
			},
		},
		"agent/agenttest": {
			why:  "the suite knows the contract alone",
			ours: []string{"agent"},
		},
		"agent/claudecode": {
			why:     "a provider knows the contract and what it runs on",
			ours:    []string{"agent", "claude"},
			outside: allow{"os": "what tells whether the CLI is logged in"},
		},
		"agent/anthropic": {
			why:  "a provider knows the contract, the words of conversations, its tools, and what rules about them mean",
			ours: []string{"agent", "agent/anthropic/tools", "claude", "internal/permission"},
			outside: allow{
				"os":                                     "records of sessions are files",
				"os/exec":                                "how tools start commands is said in its options; it starts none",
				"net/http":                               "one client for all agents, and the headers of answers",
				"github.com/anthropics/anthropic-sdk-go": "requests to the Messages API, its streams and errors",
				"github.com/google/jsonschema-go":        "results follow a schema",
			},
		},
		"agent/anthropic/tools": {
			why:  "tools know what a call is and how an agent's servers are configured, not who runs the conversation",
			ours: []string{"agent", "claude"},
			outside: allow{
				"os":                                     "files are what most tools are about",
				"os/exec":                                "Bash, ripgrep and MCP servers",
				"syscall":                                "process groups, and how a file is opened without being led astray",
				"net":                                    "WebFetch looks at the address that it connects to",
				"net/http":                               "WebFetch, and MCP servers behind a URL",
				"github.com/modelcontextprotocol/go-sdk": "tools of MCP servers",
			},
		},
		"internal/yamltree": {
			why:     "it reads a language, and knows nobody whose words are written in it",
			outside: allow{"go.yaml.in/yaml/v3": "YAML with positions; hand-written, it would be thousands of lines"},
		},
		"internal/agentfile": {
			why:  "it reads definitions, in the vocabulary and the words of permissions; it runs nothing",
			ours: []string{".", "internal/permission", "internal/spelling", "internal/yamltree"},
			outside: allow{
				"os":                              "the files of agents",
				"syscall":                         "how a file is opened without waiting for a pipe that took its place",
				"github.com/google/jsonschema-go": "schemas of inputs, results and custom tools",
			},
		},
		"agent/scripted": {
			why:  "a provider knows the contract, and the words of conversations",
			ours: []string{"agent", "claude", "internal/yamltree"},
			outside: allow{
				"os":                                     "the file of a script",
				"github.com/modelcontextprotocol/go-sdk": "a script can call the tools of an agent's servers",
			},
		},
		"api": {
			why:  "programs of others import it to reach a daemon: it knows the vocabulary alone",
			ours: []string{"."},
			outside: allow{
				"net":      "it dials the daemon's socket",
				"net/http": "and asks there",
				"syscall":  "how the operating system says that nobody listens",
			},
		},
		"scriptmodel": {
			why: "it plays a model for anybody's client, so it knows none of ours",
			outside: allow{
				"os":                            "",
				"net":                           "it listens",
				"net/http":                      "it speaks the Messages API",
				"go.yaml.in/yaml/v3":            "scripts are YAML, and errors in them have positions",
				"github.com/segmentio/encoding": "requests repeat their conversation: in each, 40 kB take 0.6 ms instead of 3.4",
			},
		},
		"internal/engine": {
			why:  "it carries out what plan decides, on the broker",
			ours: []string{".", "internal/broker", "internal/plan"},
			outside: allow{
				"github.com/nats-io/nats.go": "documents and queues",
				"golang.org/x/sync":          "parts that end together",
			},
		},
		"internal/eventlog": {
			why:  "the log knows events and the broker that keeps them",
			ours: []string{".", "internal/broker"},
			outside: allow{
				"github.com/nats-io/nats.go": "the stream, and what is live only",
			},
		},
		"internal/history": {
			why:  "all SQL is here, and what it is projected from is the log",
			ours: []string{".", "internal/eventlog"},
			outside: allow{
				"os":                 "its file",
				"syscall":            "how the operating system says that a disk is full or cannot be written",
				"database/sql":       "",
				"modernc.org/sqlite": "one file, no server, no cgo; chosen by BenchmarkDrivers",
			},
		},
		"internal/graph": {
			why:  "a graph is read, checked and run without knowing who runs its tasks",
			ours: []string{".", "internal/yamltree"},
			outside: allow{
				"github.com/google/jsonschema-go": "whether a field that is referred to can be there",
			},
		},
		"internal/plan": {
			why:  "what happens next follows from a run, an input and the time, and from nothing else",
			ours: []string{"."},
		},
		"internal/runner": {
			why:  "it executes a run with any agent, and knows nobody who starts runs",
			ours: []string{".", "agent", "claude"},
			outside: allow{
				"github.com/google/jsonschema-go": "a result follows its schema, whatever the provider says",
			},
		},
		"internal/spawn": {
			why:  "what an agent can do with others; who executes it, and on what, is behind its interfaces",
			ours: []string{".", "agent", "api", "internal/permission", "internal/plan"},
			outside: allow{
				"os":                              "the folders of sessions",
				"net/http":                        "the statuses of problems",
				"github.com/google/jsonschema-go": "what the tools of agents are given follows a schema",
			},
		},
		"internal/server": {
			why:  "it translates and decides nothing: what a daemon does is behind its interface",
			ours: []string{".", "api"},
			outside: allow{
				"os":       "the socket's file",
				"syscall":  "its mode before it has a name, and whether somebody listens on it",
				"net":      "it listens",
				"net/http": "it speaks HTTP",
			},
		},
		"internal/daemon": {
			why: "it builds the parts and runs them: the only place that knows them all",
			ours: []string{
				".", "agent", "agent/anthropic", "agent/claudecode", "agent/scripted", "api", "claude", "internal/agentfile", "internal/broker", "internal/engine",
				"internal/eventlog", "internal/graph", "internal/history", "internal/permission", "internal/plan", "internal/pool", "internal/proxy", "internal/runner",
				"internal/sandbox", "internal/server", "internal/spawn", "internal/toolserver",
				"internal/workspace",
			},
			outside: allow{
				"os":                "the project's folder",
				"net":               "addresses in the config",
				"net/http":          "the statuses of problems",
				"golang.org/x/sync": "parts that end together",
			},
		},
		"internal/permission": {
			why:  "what a run may do follows from its policy and the call, and from nothing else",
			ours: []string{"internal/spelling"},
		},
		"internal/soak": {
			why:     "tests ask it how long they are; it knows none of them",
			outside: allow{"os": "the environment says it"},
		},
		"internal/spelling": {
			why: "words are compared in one way, for all who suggest one",
		},
		"internal/proxy": {
			why:  "it lets connections out by a list of hosts, and knows nobody who makes them",
			ours: []string{"internal/permission"},
			outside: allow{
				"net":      "it dials, and serves who connects",
				"net/http": "which is what proxies are asked in",
			},
		},
		"internal/pool": {
			why:  "it holds CLIs, and knows nobody who uses them",
			ours: []string{"claude"},
			outside: allow{
				"github.com/modelcontextprotocol/go-sdk/mcp": "the servers that a CLI gets from who takes it",
				"os": "the CLI's file and the memory of a process",
			},
		},
		"internal/toolserver": {
			why:  "it makes tools of commands, and knows nothing of who uses them",
			ours: []string{"agent"},
			outside: allow{
				"os":                              "the environment of commands",
				"os/exec":                         "the commands of custom tools; they end with the call, and their group with them",
				"syscall":                         "process groups",
				"github.com/google/jsonschema-go": "an input follows its schema before it is an argument",
			},
		},
		"internal/workspace": {
			why:  "it knows folders, and of the runs that work in them no more than their names",
			ours: []string{"."},
			outside: allow{
				"os":                           "files are what it is about",
				"os/exec":                      "git, and what makes a new worktree ready",
				"net":                          "ports that are handed out are tried first",
				"syscall":                      "locks, process groups, and how a file is opened without waiting for a pipe that took its place",
				"golang.org/x/sys":             "locks, on Windows",
				"github.com/fsnotify/fsnotify": "what commands change; five operating systems tell it in five ways",
			},
		},
		"internal/sandbox": {
			why: "it confines a command, and knows nothing of who runs it",
			outside: allow{
				"os":                                  "",
				"os/exec":                             "it starts itself, and the command",
				"os/signal":                           "it passes signals on to the command",
				"net":                                 "it takes over the listeners of commands with a network of their own",
				"unsafe":                              "a filter of system calls is handed to the kernel by its address",
				"syscall":                             "what the kernel enforces is asked for by its calls",
				"golang.org/x/sys":                    "… those that syscall does not have: mounts, capabilities, who reaps",
				"github.com/landlock-lsm/go-landlock": "Landlock for all threads at once, version by version",
			},
		},
		"internal/broker": {
			why: "it knows NATS, and nothing of what is put into it",
			outside: allow{
				"os":                                "the folder of its files",
				"syscall":                           "the lock on it",
				"net":                               "errors of connections, to tell a broker that is away from one that refuses",
				"golang.org/x/sync":                 "streams that are declared at once",
				"golang.org/x/sys":                  "the same, on Windows",
				"github.com/nats-io/nats-server/v2": "queues, replication, leases and timers are not written again",
				"github.com/nats-io/nats.go":        "",
				"github.com/minio/highwayhash":      "the checksums in the server's files, which it reads before the server cuts off what is damaged",
			},
		},
		"internal/cli": {
			why:  "commands reach the parts through daemon and api; what comes back from another machine, they put into the folder themselves",
			ours: []string{".", "agent/scripted", "api", "claude", "internal/agentfile", "internal/daemon", "internal/graph", "internal/permission", "internal/sandbox", "internal/spawn", "internal/spelling", "internal/workspace", "internal/yamltree", "scriptmodel"},
			outside: allow{
				"github.com/modelcontextprotocol/go-sdk": "mcp is a server on stdin and stdout",
				"os":                                     "",
				"os/signal":                              "Ctrl-C",
				"syscall":                                "and SIGTERM",
				"net":                                    "model serve listens, doctor tries to",
				"net/http":                               "doctor asks the scripted model",
				"github.com/spf13/cobra":                 "",
				"github.com/spf13/pflag":                 "",
				"golang.org/x/term":                      "whether somebody looks, and how much fits",
				"golang.org/x/text":                      "how many columns a character takes",
			},
		},
		"tools/bench-engine": {
			why:  "it uses the core as the daemon would, and the broker beneath it",
			ours: []string{".", "internal/broker", "internal/engine", "internal/eventlog", "internal/pool"},
			outside: allow{
				"os":                         "",
				"os/exec":                    "it starts itself to be measured",
				"os/signal":                  "Ctrl-C",
				"github.com/nats-io/nats.go": "the bare broker is the peer",
			},
		},
		"tools/bench-sdk": {
			why:  "it uses the SDK as anybody would",
			ours: []string{"claude"},
			outside: allow{
				"os":      "",
				"os/exec": "it runs both readers, and itself in every role",
			},
		},
		"tools/bench-warm": {
			why:  "it uses warm handles as the daemon would",
			ours: []string{"claude", "claude/claudetest", "internal/pool", "scriptmodel"},
			outside: allow{
				"os":        "",
				"net":       "it serves the scripted model",
				"os/signal": "Ctrl-C",
			},
		},
		"tools/bench-api": {
			why:  "it compares the api provider with the CLI, and uses both as the daemon would",
			ours: []string{"agent", "agent/anthropic", "claude", "claude/claudetest", "internal/pool", "scriptmodel"},
			outside: allow{
				"os":        "",
				"os/exec":   "it runs itself in every role",
				"os/signal": "Ctrl-C",
				"net":       "it serves the scripted model",
				"net/http":  "and holds its answers back",
			},
		},
		"tools/bench-agentfile": {
			why:  "it uses definitions as the daemon does, and the daemon as anybody would",
			ours: []string{".", "api", "internal/agentfile", "internal/daemon"},
			outside: allow{
				"os":        "",
				"os/signal": "Ctrl-C",
			},
		},
		"tools/bench-run": {
			why:  "it compares the nestor command with the providers beneath it",
			ours: []string{"agent", "agent/anthropic", "agent/claudecode", "claude/claudetest", "scriptmodel"},
			outside: allow{
				"os":        "",
				"os/exec":   "it runs both sides as processes",
				"os/signal": "Ctrl-C",
				"net":       "it serves the scripted model",
			},
		},
		"tools/bench-spawn": {
			why:  "it compares agents that start agents with a CLI that starts itself",
			ours: []string{"api", "claude/claudetest", "scriptmodel"},
			outside: allow{
				"os":        "",
				"os/exec":   "it runs all sides as processes",
				"os/signal": "Ctrl-C",
				"net":       "it serves the scripted model",
			},
		},
		"tools/bench-tree": {
			why:  "it uses the daemon as anybody would",
			ours: []string{".", "agent/scripted", "api", "internal/daemon"},
			outside: allow{
				"os":        "",
				"os/signal": "Ctrl-C",
			},
		},
		"cmd/nestor": {
			why:     "main is ten lines over internal/cli",
			ours:    []string{"internal/cli"},
			outside: allow{"os": ""},
		},
	},
	tests: allow{
		"golang.org/x/tools/txtar":                   "corpora of files",
		"github.com/ncruces/go-sqlite3":              "the other driver, which BenchmarkDrivers measures",
		"pgregory.net/rapid":                         "properties of whole trees, shrunk to the smallest that breaks",
		"github.com/rogpeppe/go-internal/testscript": "our command line, one script per behaviour",
		"go.uber.org/goleak":                         "no goroutine is left behind",
		"github.com/modelcontextprotocol/go-sdk":     "servers for agents under test",
		"github.com/anthropics/anthropic-sdk-go":     "a real client for scriptmodel",
	},
}

func TestArchitecture(t *testing.T) {
	imports, err := readImports(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range architecture.check(imports) {
		t.Error(problem)
	}
}

// rules say what each package may import beyond the unrestricted part of the
// standard library. Test files may import all of the standard library, all of
// ours, what their package may, and the modules in tests.
type rules struct {
	restricted map[string]string // standard packages that need an allowance, and why
	packages   map[string]pkg    // by folder; all that exist, and only those
	tests      allow
}

// pkg is the line of one package.
type pkg struct {
	why     string   // printed when it imports more of ours than it may
	ours    []string // folders
	outside allow
}

// allow maps what may be imported, an outside module or folder in it, or a
// restricted standard package, to the reason; empty where it is obvious.
type allow map[string]string

// covers returns the entry of a that lets name be imported, or "".
func (a allow) covers(name string) string {
	for entry := range a {
		if name == entry || isOutside(entry) && strings.HasPrefix(name, entry+"/") {
			return entry
		}
	}
	return ""
}

// imported is one import of one file.
type imported struct {
	file string // slash-separated, from the module root
	path string // what it imports; empty for a file that imports nothing
}

func (i imported) dir() string { return path.Dir(i.file) }
func (i imported) test() bool  { return strings.HasSuffix(i.file, "_test.go") }

// folder returns where in the module a package of ours is.
func folder(name string) (dir string, ours bool) {
	if name == module {
		return ".", true
	}
	return strings.CutPrefix(name, module+"/")
}

// isOutside tells modules from the standard library, whose names have no dot.
func isOutside(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return strings.Contains(first, ".")
}

// readImports lists the imports of all Go files below fsys, whatever their
// build tags, except in testdata, node_modules and hidden folders.
func readImports(fsys fs.FS) (all []imported, err error) {
	err = eachGoFile(fsys, func(name string, src []byte) error {
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		if err != nil {
			return err
		}
		all = append(all, imported{file: name})
		for _, spec := range file.Imports {
			to, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: import %s: %w", name, spec.Path.Value, err)
			}
			all = append(all, imported{file: name, path: to})
		}
		return nil
	})
	return all, err
}

// eachGoFile reads the Go files of which readImports lists the imports.
func eachGoFile(fsys fs.FS, do func(name string, src []byte) error) error {
	return fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		hidden := name != "." && (base[0] == '.' || base[0] == '_')
		switch {
		case d.IsDir() && (hidden || base == "testdata" || base == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || hidden || path.Ext(base) != ".go":
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		return do(name, src)
	})
}

// Nothing happens by import, but for what has to happen before the rest of the program
// is initialized.
func TestNoInit(t *testing.T) {
	allowed := map[string]string{
		"internal/sandbox/supervise_linux.go": "a wrapped command begins in half the time",
	}
	err := eachGoFile(os.DirFS("."), func(name string, src []byte) error {
		has := bytes.Contains(src, []byte("\nfunc init() {"))
		if why, may := allowed[name]; has != may {
			t.Errorf("%s: there is an init function: %v; there may be: %v (%s)", name, has, may, why)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// check returns a sentence for each import that the rules forbid, each package
// that they do not list and each of their lines that is stale, sorted.
func (r rules) check(imports []imported) []string {
	var problems []string
	problem := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf(format, args...))
	}
	exists := map[string]bool{}
	used := map[[2]string]bool{} // package and entry; package "" stands for the tests
	for _, i := range imports {
		dir := i.dir()
		p, listed := r.packages[dir]
		if !i.test() {
			if !exists[dir] && !listed {
				problem("%s: package %s is not in the table: say there what it may import", i.file, dir)
			}
			exists[dir] = true
		}
		if i.path == "" || !i.test() && !listed {
			continue
		}
		ours, isOurs := folder(i.path)
		reason, restricted := r.restricted[i.path]
		switch {
		case i.test():
			if !isOutside(i.path) || isOurs || p.outside.covers(i.path) != "" {
				continue
			}
			entry := r.tests.covers(i.path)
			if entry == "" {
				problem("%s: imports %s, which tests may not: %s", i.file, i.path, newDependency)
			}
			used[[2]string{"", entry}] = true
		case isOurs:
			if !slices.Contains(p.ours, ours) {
				problem("%s: imports %s, which %s may not%s", i.file, i.path, dir, because(p.why))
			}
			used[[2]string{dir, ours}] = true
		case isOutside(i.path) || restricted:
			entry := p.outside.covers(i.path)
			if entry == "" {
				if !restricted {
					reason = newDependency
				}
				problem("%s: imports %s, which %s may not%s%s", i.file, i.path, dir, because(reason), r.whoMay(i.path))
			}
			used[[2]string{dir, entry}] = true
		}
	}
	for dir, p := range r.packages {
		if !exists[dir] {
			problem("stale: package %s does not exist", dir)
			continue
		}
		for _, ours := range p.ours {
			if !used[[2]string{dir, ours}] {
				problem("stale: %s may import %s, but does not", dir, ours)
			}
		}
		for entry, why := range p.outside {
			if !used[[2]string{dir, entry}] {
				problem("stale: %s may import %s, but does not%s", dir, entry, because(why))
			}
		}
	}
	for entry, why := range r.tests {
		if !used[[2]string{"", entry}] {
			problem("stale: tests may import %s, but none does%s", entry, because(why))
		}
	}
	slices.Sort(problems)
	return problems
}

// whoMay names the packages that may import name.
func (r rules) whoMay(name string) string {
	var who []string
	for _, dir := range slices.Sorted(maps.Keys(r.packages)) {
		if r.packages[dir].outside.covers(name) != "" {
			who = append(who, dir)
		}
	}
	if who == nil {
		return " (nobody may)"
	}
	return " (" + strings.Join(who, ", ") + " may)"
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// The tests of the test: each kind of problem is caught, with its file, its
// import and the reason.
func TestArchitectureCheck(t *testing.T) {
	small := rules{
		restricted: map[string]string{"os/exec": "processes have owners", "net": "sockets have owners"},
		packages: map[string]pkg{
			"claude":       {why: "it stands alone", outside: allow{"os/exec": "it starts the CLI", "example.com/mcp": "tools"}},
			"internal/cli": {ours: []string{"claude"}},
		},
		tests: allow{"example.com/leak": "leaks"},
	}
	const (
		claude = `package claude; import ("os/exec"; "example.com/mcp/sub"; "strings")`
		cli    = `package cli; import "` + module + `/claude"`
		leak   = `package claude_test; import "example.com/leak"`
	)
	good := map[string]string{"claude/a.go": claude, "internal/cli/a.go": cli, "claude/a_test.go": leak}

	for _, test := range []struct {
		name string
		tree map[string]string // on top of good; empty removes
		want []string
	}{
		{name: "nothing wrong"},
		{
			name: "ours",
			tree: map[string]string{"claude/b.go": `package claude; import "` + module + `/internal/cli"`},
			want: []string{"claude/b.go: imports " + module + "/internal/cli, which claude may not: it stands alone"},
		},
		{
			name: "the root package",
			tree: map[string]string{"claude/b.go": `package claude; import "` + module + `"`},
			want: []string{"claude/b.go: imports " + module + ", which claude may not: it stands alone"},
		},
		{
			name: "restricted standard package with a home",
			tree: map[string]string{"internal/cli/b.go": `package cli; import "os/exec"`},
			want: []string{"internal/cli/b.go: imports os/exec, which internal/cli may not: processes have owners (claude may)"},
		},
		{
			name: "restricted standard package without one",
			tree: map[string]string{"internal/cli/b.go": `package cli; import "net"`},
			want: []string{"internal/cli/b.go: imports net, which internal/cli may not: sockets have owners (nobody may)"},
		},
		{
			name: "its neighbours are free",
			tree: map[string]string{"internal/cli/b.go": `package cli; import "net/url"`},
		},
		{
			name: "outside module",
			tree: map[string]string{"internal/cli/b.go": `package cli; import "example.com/mcp"`},
			want: []string{"internal/cli/b.go: imports example.com/mcp, which internal/cli may not: " + newDependency + " (claude may)"},
		},
		{
			name: "a longer name is another module",
			tree: map[string]string{"claude/b.go": `package claude; import "example.com/mcpx"`},
			want: []string{"claude/b.go: imports example.com/mcpx, which claude may not: " + newDependency + " (nobody may)"},
		},
		{
			name: "behind a build tag",
			tree: map[string]string{"internal/cli/b_windows.go": "//go:build never\n\npackage cli; import \"net\""},
			want: []string{"internal/cli/b_windows.go: imports net, which internal/cli may not: sockets have owners (nobody may)"},
		},
		{
			name: "package that is not listed",
			tree: map[string]string{"util/a.go": `package util; import "net"`, "util/b.go": `package util`},
			want: []string{"util/a.go: package util is not in the table: say there what it may import"},
		},
		{
			name: "folders that the go command skips",
			tree: map[string]string{
				"claude/testdata/a.go":    `package a; import "net"`,
				"tools/node_modules/a.go": `package a`,
				".cache/a.go":             `package a`,
			},
		},
		{
			name: "tests may import ours, the standard library and what their package may",
			tree: map[string]string{"claude/b_test.go": `package claude; import ("net"; "example.com/mcp"; "` + module + `/internal/cli")`},
		},
		{
			name: "outside module in a test",
			tree: map[string]string{"internal/cli/b_test.go": `package cli; import "example.com/mcp"`},
			want: []string{"internal/cli/b_test.go: imports example.com/mcp, which tests may not: " + newDependency},
		},
		{
			name: "stale package",
			tree: map[string]string{"internal/cli/a.go": ""},
			want: []string{"stale: package internal/cli does not exist"},
		},
		{
			name: "a package of tests alone does not exist",
			tree: map[string]string{"internal/cli/a.go": "", "internal/cli/a_test.go": cli},
			want: []string{"stale: package internal/cli does not exist"},
		},
		{
			name: "stale allowance of ours",
			tree: map[string]string{"internal/cli/a.go": `package cli`},
			want: []string{"stale: internal/cli may import claude, but does not"},
		},
		{
			name: "stale outside allowance",
			tree: map[string]string{"claude/a.go": `package claude; import "os/exec"`},
			want: []string{"stale: claude may import example.com/mcp, but does not: tools"},
		},
		{
			name: "stale allowance of tests",
			tree: map[string]string{"claude/a_test.go": ""},
			want: []string{"stale: tests may import example.com/leak, but none does: leaks"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := maps.Clone(good)
			maps.Copy(files, test.tree)
			tree := fstest.MapFS{}
			for name, src := range files {
				if src != "" {
					tree[name] = &fstest.MapFile{Data: []byte(src)}
				}
			}
			imports, err := readImports(tree)
			if err != nil {
				t.Fatal(err)
			}
			if got := small.check(imports); !slices.Equal(got, test.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(test.want, "\n  "))
			}
		})
	}
}
