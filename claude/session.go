package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Session is one CLI process that takes many prompts. Its methods may be
// called from any goroutine, except that messages are read by one at a time:
// an iteration of [Session.Prompt], [Session.Ask] or [Session.Messages] waits
// until the one before it has ended.
type Session struct {
	opts   Options
	path   string // of the CLI
	proc   Process
	queue  *queue // of messages, from the reader to whoever reads them
	ledger ledger
	bridge *bridge
	mirror *mirror // nil without a store
	hooks  map[string]hookFunc
	first  initRequest // the first request

	reading chan struct{}  // holds a token while somebody reads messages
	serving sync.WaitGroup // callbacks that are being run

	// delivering is set while the reader has taken note of messages that it has
	// not passed on yet.
	delivering atomic.Bool

	out       chan outgoing // from anybody to the writer
	closing   chan struct{} // closed by Close, when closeErr is set
	closeErr  error
	closeOnce sync.Once
	ready     chan struct{} // closed when the first request is answered
	gone      chan struct{} // closed by supervise when the CLI cannot be spoken to any more
	done      chan struct{} // closed by supervise when nothing of the session is left
	err       error         // what the session ended with, once gone is closed; nil if it ended well

	mu        sync.Mutex      // guards what follows
	info      *InitializeInfo // the answer to the first request
	calls     map[string]chan<- controlAnswer
	inflight  map[string]context.CancelFunc // requests of the CLI, by id
	ids       int                           // of our requests
	finishing bool                          // close the input as soon as nothing is left to do
	stderr    stderrTail
	seen      string         // the last thing that the CLI was seen doing, for errors
	commands  []SlashCommand // the newest list
	ended     bool           // no further callback is started
}

// Start starts the CLI and returns when it is ready for a prompt. The session
// lives until Close, or until ctx ends, which has the same effect.
//
// It fails with an error that names the options which are wrong, a
// *[NotFoundError], a *[ConnectionError], the cause when ctx ends, or, when the
// CLI ended instead of getting ready, a *[ProcessError], which wraps the
// *[ResultError] that says why, if the CLI said why. A CLI that would not obey
// [Hook].BlockOnFailure is an *[UnsupportedError].
func Start(ctx context.Context, opts Options) (*Session, error) {
	s, err := open(ctx, opts)
	if err != nil {
		return nil, err
	}
	if err := s.initialize(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// open starts the process and what serves it.
func open(ctx context.Context, opts Options) (*Session, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	restored, err := opts.restore(ctx)
	if err != nil {
		return nil, err
	}
	path := opts.Path
	if opts.Spawn == nil { // else the path is another machine's
		if path, err = opts.program(); err != nil {
			restored()
			return nil, err
		}
	}
	l, err := opts.launch(path)
	if err != nil {
		restored()
		return nil, err
	}
	cleanup := func() { l.cleanup(); restored() }
	for _, w := range l.warnings {
		opts.warn(w)
	}
	proc, err := opts.start(ctx, Command{Path: path, Args: l.args, Dir: l.dir, Env: l.env, User: opts.User})
	if err != nil {
		cleanup()
		if e, ok := errors.AsType[*NotFoundError](err); ok {
			e.Given = opts.Path != ""
		}
		return nil, err
	}
	s := &Session{
		opts: opts, path: path, proc: proc, queue: newQueue(queueLimit), hooks: l.hooks, first: l.init,
		reading: make(chan struct{}, 1), out: make(chan outgoing), closing: make(chan struct{}),
		ready: make(chan struct{}), gone: make(chan struct{}), done: make(chan struct{}),
		calls: map[string]chan<- controlAnswer{}, inflight: map[string]context.CancelFunc{},
	}
	s.bridge = newBridge(inProcessServers(l.servers), s.forward)
	if opts.Store != nil {
		s.mirror = newMirror(opts.Store, projectsDir(l.env), opts.StoreMode, s.mirrorFailed)
	}
	go s.supervise(ctx, cleanup)
	return s, nil
}

// start starts the process as the options say.
func (o *Options) start(ctx context.Context, c Command) (Process, error) {
	if o.Spawn == nil {
		if o.Wrap != nil { // what is started instead is there, and could not tell as well
			if _, err := exec.LookPath(c.Path); err != nil {
				return nil, startError(c.Path, err)
			}
		}
		return startLocal(o.wrapped(c))
	}
	p, err := o.Spawn(ctx, c)
	if err != nil {
		return nil, &ConnectionError{Op: "starting the CLI", Err: err}
	}
	return p, nil
}

// wrapped returns the command as Wrap has it.
func (o *Options) wrapped(c Command) Command {
	if o.Wrap == nil {
		return c
	}
	argv := o.Wrap(append([]string{c.Path}, c.Args...))
	c.Path, c.Args = argv[0], argv[1:]
	return c
}

// restore writes the session that is to go on from the store to a folder for
// the CLI, and changes the options to resume it there.
func (o *Options) restore(ctx context.Context) (remove func(), err error) {
	if o.Store == nil || o.Spawn != nil {
		return func() {}, nil
	}
	// The CLI's own configuration, which need not be that of this process.
	env := o.environ(os.Environ(), runtime.GOOS)
	m, err := materialize(ctx, materialOptions{
		Store: o.Store, Resume: o.Resume, Continue: o.Continue, Dir: o.Dir,
		ConfigDir: lookup(env, "CLAUDE_CONFIG_DIR"), Home: homeIn(env),
	})
	if m == nil {
		return func() {}, err
	}
	o.Resume, o.Continue = m.Session, false
	o.Env = append(slices.Clone(o.Env), "CLAUDE_CONFIG_DIR="+m.ConfigDir)
	return func() {
		if err := m.remove(); err != nil {
			o.warn("removing " + m.ConfigDir + ": " + err.Error())
		}
	}, nil
}

func (o *Options) warn(text string) {
	if o.Log != nil {
		o.Log.Warn(text)
	}
}

func (o *Options) grace() time.Duration {
	if o.Grace <= 0 {
		return 5 * time.Second
	}
	return o.Grace
}

// projectsDir is where a CLI with that environment keeps its sessions.
func projectsDir(env []string) string {
	dir := lookup(env, "CLAUDE_CONFIG_DIR")
	if dir == "" {
		dir = filepath.Join(homeIn(env), ".claude")
	}
	return filepath.Join(dir, "projects")
}

// homeIn is the home of a CLI with that environment; empty if that does not say.
func homeIn(env []string) string {
	if runtime.GOOS == "windows" {
		return lookup(env, "USERPROFILE")
	}
	return lookup(env, "HOME")
}

// lookup returns the value of the last assignment to name.
func lookup(env []string, name string) (value string) {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

func inProcessServers(servers map[string]*InProcess) map[string]*mcp.Server {
	m := map[string]*mcp.Server{}
	for name, s := range servers {
		m[name] = s.Server
	}
	return m
}

// initialize makes the first request and waits for the CLI to be ready.
func (s *Session) initialize(ctx context.Context) error {
	limit := s.opts.InitTimeout
	if limit <= 0 {
		limit = time.Minute
	}
	late := fmt.Errorf("claude code was not ready within %v", limit)
	ctx, stop := context.WithTimeoutCause(ctx, limit, late)
	defer stop()
	if m := s.bridge.manifests(ctx); len(m) > 0 {
		s.first.SDKServerManifests = m
	}
	var payload json.RawMessage
	if err := s.call(ctx, "initialize", s.first, &payload); err != nil {
		if errors.Is(err, late) {
			return &ConnectionError{Op: "starting claude code", Stderr: s.stderrText(), Err: fmt.Errorf("%w; last seen: %s", late, s.lastSeen())}
		}
		if errors.Is(err, ErrClosed) { // nobody else has the session yet
			return &ConnectionError{Op: "starting " + s.program(), Stderr: s.stderrText(), Err: errors.New("it ended with exit code 0 before it was ready; '--version' tells whether it is Claude Code")}
		}
		return err
	}
	info, err := decodeInitialize(payload)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.info, s.commands = info, info.Commands
	s.mu.Unlock()
	close(s.ready)
	switch v := info.Version; {
	case v == "" && s.opts.Spawn == nil:
		warnVersion(ctx, s.opts.Log, s.path)
	case v != "" && !Supported(v) && s.opts.Log != nil:
		s.opts.Log.Warn("the claude cli is too old", "version", v, "minimum", MinVersion, "path", s.path)
	}
	return s.checkHooks(info)
}

// program is what was started, for errors.
func (s *Session) program() string {
	if s.path == "" {
		return "claude code"
	}
	return s.path
}

// checkHooks refuses a CLI that would not block what a hook must block.
func (s *Session) checkHooks(info *InitializeInfo) error {
	for event, matchers := range s.first.Hooks {
		for _, m := range matchers {
			dropped := info.HooksApplied != nil && !*info.HooksApplied
			if m.OnFailure != "" && (dropped || !info.HookOnFailureSupported) {
				return &UnsupportedError{Request: event + " hook with BlockOnFailure", Version: info.Version}
			}
		}
	}
	return nil
}

// Info returns what the CLI said of itself when it was ready. The caller must
// not change it.
func (s *Session) Info() *InitializeInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

// Commands returns the slash commands that there are now.
func (s *Session) Commands() []SlashCommand {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.commands)
}

// CloseInput says that no further message will be sent. The CLI finishes what
// it was given, its background work included, and ends.
func (s *Session) CloseInput() {
	s.mu.Lock()
	s.finishing = true
	s.mu.Unlock()
	s.settle()
}

// Close ends the session: what is running is interrupted, the CLI is given
// Options.Grace to save the conversation and end, then asked to terminate, then
// killed with all that it started, as far as the system can tell what that is.
// It may be called at any time, any number of times, and returns when nothing of
// the session is left but callbacks that ignore their context. What was said
// before can still be read; behind it comes [ErrClosed], unless the session had
// ended before.
func (s *Session) Close() error {
	s.closeWith(ErrClosed)
	<-s.done
	return nil
}

// closeWith begins to close the session, which ends with err.
func (s *Session) closeWith(err error) {
	s.closeOnce.Do(func() {
		s.closeErr = err
		close(s.closing)
	})
}

// spawn runs a callback, or anything else that ends when the CLI is gone, in a
// goroutine that Close waits for.
func (s *Session) spawn(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.serving.Go(f)
	}
}

func (s *Session) stderrText() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return redact(s.stderr.text)
}

func (s *Session) lastSeen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == "" {
		return "nothing"
	}
	return s.seen
}
