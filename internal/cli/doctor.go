package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/scriptmodel"
)

const (
	checkTimeout = 5 * time.Second // when a check of the doctor is asked to end
	checkGrace   = 2 * time.Second // what it then has to clean up

	sdkPathKey = "providers.sdk.path"
)

func newDoctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that this machine can run agents",
		Long: `Check that this machine can run agents.

Each line is ok, a warning (something is not there, and what needs it will not
work) or a failure (something is wrong), and says the way out.`,
		Example: "nestor doctor\nnestor doctor --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			report := examine(cmd.Context(), checks)
			if err := context.Cause(cmd.Context()); err != nil {
				return err
			}
			print := report.print
			if asJSON {
				print = report.printJSON
			}
			if err := print(cmd.OutOrStdout()); err != nil {
				return err
			}
			if n := report.failures(); n > 0 {
				return fmt.Errorf("doctor: %d of %d checks failed; see above for the way out", n, len(report))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// status is how a check ended.
type status string

const (
	statusOK      status = "ok"
	statusWarning status = "warning" // it is not there, and what needs it will not work
	statusFailure status = "failure" // it is wrong
)

// finding is what a check found.
type finding struct {
	Check  string `json:"check"`
	Status status `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // the way out; empty when ok
}

func ok(format string, args ...any) finding {
	return finding{Status: statusOK, Detail: fmt.Sprintf(format, args...)}
}

func warning(fix, format string, args ...any) finding {
	return finding{Status: statusWarning, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

func failure(fix, format string, args ...any) finding {
	return finding{Status: statusFailure, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

// check looks at one thing, independent of the others.
type check struct {
	name string
	run  func(context.Context) finding
}

var checks = []check{
	{"platform", checkPlatform},
	{"claude", checkClaude},
	{"git", checkGit},
	{"temp", checkTemp},
	{"loopback", checkLoopback},
	{"sandbox", checkSandbox},
	{"limits", checkLimits},
	{"project", checkProject},
}

type report []finding

// examine runs the checks at once and reports in their order.
func examine(ctx context.Context, checks []check) report {
	r := make(report, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() {
			r[i] = c.bounded(ctx)
			r[i].Check = c.name
		})
	}
	wg.Wait()
	return r
}

// bounded runs c and returns what it found, or that it panicked or did not end.
// A check that ignores its context, in a call that the kernel does not return
// from, is left behind: the process is about to end.
func (c check) bounded(ctx context.Context) finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	found := make(chan finding, 1) // sent once, by the goroutine below
	go func() {
		defer func() {
			if p := recover(); p != nil {
				found <- failure("report this as a bug of nestor", "panic: %v", p)
			}
		}()
		found <- c.run(ctx)
	}()
	select {
	case f := <-found:
		return f
	case <-ctx.Done():
	}
	select {
	case f := <-found:
		return f
	case <-time.After(checkGrace):
		return failure("look for what hangs: a network file system, a stopped process", "no answer within %v", checkTimeout)
	}
}

func (r report) failures() int {
	n := 0
	for _, f := range r {
		if f.Status == statusFailure {
			n++
		}
	}
	return n
}

func (r report) print(w io.Writer) error {
	var b strings.Builder
	for _, f := range r {
		fmt.Fprintf(&b, "%-7s  %-8s  %s\n", f.Status, f.Check, f.Detail)
		if f.Fix != "" {
			fmt.Fprintf(&b, "%19s%s\n", "", f.Fix)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r report) printJSON(w io.Writer) error {
	return printJSON(w, struct {
		OK     bool   `json:"ok"`
		Checks report `json:"checks"`
	}{r.failures() == 0, r})
}

func checkPlatform(context.Context) finding {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if runtime.GOOS != "linux" {
		return warning("nestor is tested on Linux alone", "%s", platform)
	}
	return ok("%s", platform)
}

func checkClaude(ctx context.Context) finding {
	const without = "; without it the provider sdk does not work"
	path, from, err := cliPath()
	if e, isNotFound := errors.AsType[*claude.NotFoundError](err); isNotFound {
		return warning("npm install -g @anthropic-ai/claude-code, or set "+claude.PathVariable+" to its path"+without,
			"not found: %s", places(e.Tried))
	}
	if err != nil {
		return failure("", "%v", err)
	}
	version, err := claude.Version(ctx, path)
	if err != nil && from != "" {
		return failure("set "+sdkPathKey+" ("+from+") to the path of the Claude CLI, or leave it out: then it is looked for"+without, "%v", err)
	}
	if err != nil {
		return failure("run '"+path+" --version' to see what is wrong, or install it anew"+without, "%v", err)
	}
	if !claude.Supported(version) {
		return failure("run '"+path+" update'"+without, "%s at %s is older than %s", version, path, claude.MinVersion)
	}
	return ok("%s at %s", version, path)
}

// cliPath returns the Claude CLI that runs of the project get, and where the config
// names it; empty if it is found. A config that cannot be read names none: another check
// tells.
func cliPath() (path, from string, err error) {
	if project, err := projectDir(""); err == nil {
		if cfg, err := loadConfig(project, os.Environ(), nil); err == nil && cfg.SDK.Path != "" {
			return cfg.SDK.Path, cfg.origin(sdkPathKey), nil
		}
	}
	path, err = claude.Find()
	return path, "", err
}

// places says where the CLI is not, and why not where one place alone was named.
func places(tried []claude.Place) string {
	if len(tried) == 1 {
		return fmt.Sprintf("%s: %v", tried[0].Path, tried[0].Err)
	}
	var paths []string
	for _, p := range tried {
		paths = append(paths, p.Path)
	}
	return strings.Join(paths, ", ")
}

func checkGit(context.Context) finding {
	name := "git"
	if runtime.GOOS == "windows" {
		name = "git.exe"
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && (runtime.GOOS == "windows" || info.Mode()&0o111 != 0) {
			return ok("%s", path)
		}
	}
	return warning("install git; without it no run has a worktree of its own", "not on PATH")
}

func checkTemp(context.Context) finding {
	const fix = "set TMPDIR to a folder that only you can write to"
	dir, err := os.MkdirTemp("", "nestor-doctor-")
	if err != nil {
		return failure(fix, "%v", err)
	}
	defer os.RemoveAll(dir)
	info, err := os.Stat(dir)
	if err != nil {
		return failure(fix, "%v", err)
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o077 != 0 {
		return failure(fix, "folders in %s are open to others: mode %o", os.TempDir(), mode)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
		return failure(fix, "%v", err)
	}
	return ok("%s", os.TempDir())
}

// checkLoopback serves the scripted model and asks it for its models.
func checkLoopback(ctx context.Context) finding {
	const fix = "allow this program to listen on 127.0.0.1"
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return failure(fix, "%v", err)
	}
	ctx, stop := context.WithCancel(ctx)
	served := make(chan error, 1) // Serve's result, sent once
	go func() { served <- scriptmodel.New(scriptmodel.Echo(), scriptmodel.Options{}).Serve(ctx, ln) }()
	err = getModels(ctx, "http://"+ln.Addr().String())
	stop()
	if err := errors.Join(err, <-served); err != nil {
		return failure(fix, "%v", err)
	}
	return ok("the scripted model answers on %s", ln.Addr())
}

func getModels(ctx context.Context, base string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/models", nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Api-Key", "doctor")                 // any will do
	transport := &http.Transport{DisableKeepAlives: true} // and no proxy
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", req.URL, resp.Status)
	}
	return nil
}

func checkSandbox(context.Context) finding {
	r := sandbox.Check()
	if err := r.Refuses(sandbox.Strict, sandbox.Web); err != nil {
		return warning("docs/sandbox.md says what each level needs; without one nothing but its tools confines an agent", "%v", err)
	}
	root := "no root of its own: " + r.Why
	if r.Root {
		root = "a root of its own"
	}
	hosts := "hosts can be listed"
	if err := r.Refuses(sandbox.Strict, sandbox.Hosts); err != nil {
		hosts = err.Error()
	}
	return ok("files and strict: Landlock %d, %s; %s", r.Landlock, root, hosts)
}

// checkLimits tells how limits of memory, processes and processors are kept.
func checkLimits(context.Context) finding {
	if err := sandbox.CheckGroups(); err != nil {
		return ok("of memory, processes and processor time are watched: %v", err)
	}
	return ok("of memory, processes and processor time are kept by control groups")
}

// checkProject tries whether the current folder can hold .nestor, and whether what it
// holds is read.
func checkProject(context.Context) finding {
	const fix = "change to a folder that you can write to"
	dir, err := os.Getwd()
	if err != nil {
		return failure(fix, "%v", err)
	}
	probe, err := os.MkdirTemp(dir, ".nestor-doctor-")
	if err != nil {
		return failure(fix, "%v", err)
	}
	if err := os.Remove(probe); err != nil {
		return failure(fix, "%v", err)
	}
	project, err := projectDir("")
	if err == nil {
		_, err = loadConfig(project, os.Environ(), nil)
	}
	if err != nil {
		return failure("'nestor config check' tells all that is wrong", "%v", err)
	}
	return ok("%s", dir)
}
