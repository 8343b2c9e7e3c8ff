package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Options say what a [Set] may touch. Only Dir is required.
type Options struct {
	Dir      string   // where the agent works, and may read and write
	Dirs     []string // more folders that it may read and write
	ReadDirs []string // more folders that it may read alone
	Files    []string // files elsewhere that it may read and write, which need not exist; their folders do

	// Env is added to the environment of commands, as K=V. They inherit BaseEnv, or
	// if that is nil the environment of this process, except for what belongs to
	// this process alone: variables whose names begin with ANTHROPIC_, CLAUDE or
	// NESTOR_, and AI_AGENT.
	Env     []string
	BaseEnv []string

	// Command prepares a command. Nil means exec.Command. Folder, environment,
	// output and process attributes are set on what it returns; what it sets in
	// SysProcAttr stays, apart from the process group.
	Command func(name string, arg ...string) *exec.Cmd

	// Wrap returns the command line that Command is given instead of argv, such
	// as one that confines it. Nil means argv. Ripgrep is not used then: it is
	// handed open files, which a command that is confined does not get.
	Wrap func(argv []string) []string

	// Spool is the folder for the whole text of what was cut. It is made if it
	// is not there. Read may read it, Write may not write it. Commands write a
	// line there, which says where they ended: what confines them has to let
	// them. Empty means a temporary one, which Close removes.
	Spool string

	// MaxResult is how many bytes of a result the model is told. Zero means
	// 30,000, and less than 1,000 means 1,000.
	MaxResult int

	// HardLinks lets files be read that have more than one hard link. The other
	// one may be outside of the folders, and Bash can make it.
	HardLinks bool

	// Dial connects WebFetch to a host, and decides which addresses it may have. Nil
	// means that private ones are refused, but for PrivateHosts.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// AllowHost grants WebFetch a host, without its port, in lower case. Each
	// redirect's host is asked for again. Nil grants none, and WebFetch is not
	// offered.
	AllowHost func(host string) bool

	// PrivateHosts are hosts that WebFetch may reach at a loopback, private or
	// link-local address, as host or host:port. They need AllowHost too.
	PrivateHosts []string

	// Client is what WebFetch fetches with. Nil means one that goes to no
	// private address unless PrivateHosts names the host. Another one has to see
	// to that itself.
	Client *http.Client

	// Ask answers WebFetch's prompt from the text of the page. Nil means that
	// the model is given the text.
	Ask func(ctx context.Context, prompt, page string) (string, error)
}

const (
	defaultMaxResult = 30_000
	leastMaxResult   = 1_000
)

// Set is the toolbox of one agent: what it read, the commands that it runs and
// where its shell is. Its methods may be called from any goroutine.
type Set struct {
	opts    Options
	folders []*folder // that may be written, Dir first
	mark    string    // in the environment of everything that the set starts
	shell   string
	ripgrep string // empty if there is none

	edits sync.Mutex // one file is changed at a time

	mu      sync.Mutex // guards what follows
	spool   *folder    // nil until there is one
	scratch string     // what Close removes; empty if nothing
	cwd     string     // where the next command starts; absolute and real
	seen    map[string]stamp
	given   map[string]int // paths that Access returned and Run was not yet given
	todos   []todo
	tasks   map[string]*task
	started bool // there was a command
	closed  bool

	work sync.WaitGroup // goroutines of tasks
}

// New returns the toolbox that opts describe. It starts nothing and holds
// nothing open.
func New(opts Options) (*Set, error) {
	if opts.Dir == "" {
		return nil, errors.New("tools: Dir is empty: name the folder where the agent works")
	}
	if opts.MaxResult == 0 {
		opts.MaxResult = defaultMaxResult
	}
	opts.MaxResult = max(opts.MaxResult, leastMaxResult)
	opts.Command = wrapped(opts.Command, opts.Wrap)
	s := &Set{
		opts: opts, mark: newMark(), shell: "sh",
		seen: map[string]stamp{}, given: map[string]int{}, tasks: map[string]*task{},
	}
	for _, name := range append([]string{opts.Dir}, opts.Dirs...) {
		f, err := findFolder(name, true)
		if err != nil {
			return nil, fmt.Errorf("tools: opening folder %s: %w", name, err)
		}
		s.folders = append(s.folders, f)
	}
	for _, name := range opts.ReadDirs {
		f, err := findFolder(name, false)
		if err != nil {
			return nil, fmt.Errorf("tools: opening folder %s: %w", name, err)
		}
		s.folders = append(s.folders, f)
	}
	for _, name := range opts.Files {
		f, err := findFolder(filepath.Dir(name), true)
		if err != nil {
			return nil, fmt.Errorf("tools: opening the folder of %s: %w", name, err)
		}
		f.only = filepath.Base(name)
		s.folders = append(s.folders, f)
	}
	s.cwd = s.folders[0].path
	if opts.Spool != "" { // made before anybody can put a link in its place
		if _, err := s.spoolFolder(); err != nil {
			return nil, fmt.Errorf("tools: opening spool: %w", err)
		}
	}
	if path, err := exec.LookPath("bash"); err == nil {
		s.shell = path
	}
	if path, err := exec.LookPath("rg"); err == nil && opts.Wrap == nil {
		s.ripgrep = path
	}
	return s, nil
}

// wrapped returns what prepares commands: the first, or exec.Command if it is
// nil, of what the second makes of their lines.
func wrapped(command func(string, ...string) *exec.Cmd, wrap func([]string) []string) func(string, ...string) *exec.Cmd {
	if command == nil {
		command = exec.Command
	}
	if wrap == nil {
		return command
	}
	return func(name string, arg ...string) *exec.Cmd {
		argv := wrap(append([]string{name}, arg...))
		return command(argv[0], argv[1:]...)
	}
}

// spoolFolder returns the spool. A temporary one is made when it is first
// needed.
func (s *Set) spoolFolder() (*folder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errClosed
	case s.spool != nil:
		return s.spool, nil
	}
	dir := s.opts.Spool
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "nestor-tools-"); err != nil {
			return nil, err
		}
		s.scratch = dir
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := findFolder(dir, false)
	if err != nil {
		return nil, err
	}
	s.spool = f
	return f, nil
}

var errClosed = errors.New("the tools are closed")

// Tools returns the tools of the set. Their results are bounded: what is longer
// than MaxResult is cut, and the rest is in the spool.
func (s *Set) Tools() []Tool {
	list := []Tool{
		s.readTool(), s.writeTool(), s.editTool(), s.multiEditTool(),
		s.bashTool(), s.taskOutputTool(), s.taskStopTool(),
		s.globTool(), s.grepTool(), s.todoTool(),
	}
	if s.opts.AllowHost != nil {
		list = append(list, s.webFetchTool())
	}
	return list
}

// Recall tells the set of a successful call in an earlier life of the
// conversation: what was read or written then counts as read, as it is now.
// Calls that read and write nothing, and files that are gone, are ignored.
func (s *Set) Recall(name string, input json.RawMessage) {
	switch name {
	case "Read", "Write", "Edit", "MultiEdit":
	case "TodoWrite":
		if in, err := decode[todoInput](s.todoTool(), input); err == nil && in.check() == nil {
			s.mu.Lock()
			s.todos = in.Todos
			s.mu.Unlock()
		}
		return
	default:
		return
	}
	var in struct {
		Path string `json:"file_path"`
	}
	if json.Unmarshal(input, &in) != nil || in.Path == "" {
		return
	}
	p, err := s.locate(in.Path)
	if err != nil {
		return
	}
	f, info, err := s.open(p)
	if err != nil {
		return
	}
	defer f.Close()
	s.remember(p.path, stampOf(info))
}

// Close ends all commands that the set started, with everything that they
// started, and removes what was temporary. A second call does nothing.
func (s *Set) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	tasks := make([]*task, 0, len(s.tasks))
	for _, t := range s.tasks {
		tasks = append(tasks, t)
	}
	started, scratch := s.started, s.scratch
	s.mu.Unlock()

	endTasks(tasks)
	if started {
		killMarked(markVariable + "=" + s.mark)
	}
	for _, t := range tasks {
		t.out.close()
	}
	s.work.Wait()
	if scratch == "" {
		return nil
	}
	return os.RemoveAll(scratch)
}

// workingDir returns where the shell is.
func (s *Set) workingDir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cwd
}

// shown returns path as the model is shown it: relative to where the shell is,
// or absolute if it is not below.
func (s *Set) shown(path string) string {
	if rel, ok := below(s.workingDir(), path); ok && rel != "." {
		return rel
	}
	return path
}

// folderNames lists the folders that the agent may write, for errors.
func (s *Set) folderNames() string {
	var names []string
	for _, f := range s.folders {
		names = append(names, filepath.Join(f.path, f.only))
	}
	return strings.Join(names, ", ")
}

// below returns path relative to dir, if it is dir or below it. Both are
// absolute and clean.
func below(dir, path string) (rel string, ok bool) {
	rel, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return rel, true
}

// deepest returns the folder that holds path, the innermost if there are
// several, or nil.
func (s *Set) deepest(path string) (in *folder, rel string) {
	all := slices.Clone(s.folders)
	s.mu.Lock()
	if s.spool != nil {
		all = append(all, s.spool)
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *folder) int { return cmp.Compare(len(b.path), len(a.path)) })
	for _, f := range all {
		if rel, ok := below(f.path, path); ok && (f.only == "" || rel == f.only) {
			return f, rel
		}
	}
	return nil, ""
}
