package toolserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options say how commands are run. The zero value runs them as this process is.
type Options struct {
	Dir string   // empty means the current one
	Env []string // K=V, besides what Environ leaves of this process's own
	// Wrap returns the command line that is started instead of argv; nil means argv.
	Wrap func(argv []string) []string
	Most int // bytes of output that are kept; zero means 64 KiB
}

const (
	defaultMost    = 64 << 10
	defaultTimeout = time.Minute
	grace          = 2 * time.Second // that what holds the output may take to end
)

// Run runs a command to its end and returns what it says, standard output and
// error together, cut in the middle if it is too long. If it fails, or takes
// longer than the timeout, the error says so, and what it said is returned too;
// zero means a minute. When ctx ends, the command and its group are killed.
func Run(ctx context.Context, argv []string, stdin []byte, timeout time.Duration, o Options) (string, error) {
	out := newEnds(o)
	err := run(ctx, argv, stdin, timeout, o, out, out)
	return out.String(), err
}

// Ended is how a command ended.
type Ended struct {
	Code           int // -1 if a signal ended it
	Stdout, Stderr string
}

// Exec is Run for a command whose exit code says something: it is no error, and
// standard output and error are apart.
func Exec(ctx context.Context, argv []string, stdin []byte, timeout time.Duration, o Options) (Ended, error) {
	out, errs := newEnds(o), newEnds(o)
	err := run(ctx, argv, stdin, timeout, o, out, errs)
	e := Ended{Stdout: out.String(), Stderr: errs.String()}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		e.Code, err = exit.ExitCode(), nil
	}
	return e, err
}

// run runs a command, with its output to where it is said.
func run(ctx context.Context, argv []string, stdin []byte, timeout time.Duration, o Options, stdout, stderr *ends) error {
	if len(argv) == 0 || argv[0] == "" {
		return errors.New("there is no command to run")
	}
	if timeout == 0 {
		timeout = defaultTimeout
	}
	name := argv[0]
	late := fmt.Errorf("%s took longer than %v, and was ended", name, timeout)
	ctx, stop := context.WithTimeoutCause(ctx, timeout, late)
	defer stop()
	if o.Wrap != nil {
		// What is not there is told here: the one who wraps it would not know the name.
		if _, err := exec.LookPath(absolute(argv[0], o.Dir)); err != nil && errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("starting %s: %w", name, err)
		}
		argv = o.Wrap(slices.Clone(argv))
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = o.Dir, append(Environ(), o.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), stdout, stderr
	cmd.WaitDelay = grace
	ownGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd.Process) }
	runtime.LockOSThread() // Linux ends the command when the thread that started it ends
	err := cmd.Run()
	runtime.UnlockOSThread()
	if cmd.Process != nil {
		endGroup(cmd.Process) // what it left
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay):
		return nil // it has ended, and left something that held its output
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// absolute makes a path that is relative to dir one that is found from here.
func absolute(name, dir string) string {
	if strings.Contains(name, "/") && !strings.HasPrefix(name, "/") && dir != "" {
		return dir + "/" + name
	}
	return name
}

// Environ returns the environment of this process without what no command is to
// have: keys, tokens, and what would make a Claude CLI believe that it runs inside
// another.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(strings.ToUpper(kv), "=")
		return name == "AI_AGENT" || strings.HasPrefix(name, "ANTHROPIC_") || strings.HasPrefix(name, "CLAUDE") || strings.HasPrefix(name, "NESTOR_")
	})
}

func newEnds(o Options) *ends {
	if o.Most == 0 {
		o.Most = defaultMost
	}
	return &ends{most: o.Most}
}

// ends keeps the beginning and the end of what is written to it.
type ends struct {
	most int

	mu   sync.Mutex // guards what follows
	head []byte     // at most half of most
	tail []byte     // the end of what follows it, at most twice as much
	size int
}

// Write keeps what fits.
func (e *ends) Write(data []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(data)
	e.size += n
	room := min(n, e.most/2-len(e.head))
	e.head = append(e.head, data[:room]...)
	data = data[room:]
	half := e.most - e.most/2
	data = data[max(0, len(data)-half):]
	if e.tail = append(e.tail, data...); len(e.tail) > 2*half {
		e.tail = append(e.tail[:0], e.tail[len(e.tail)-half:]...)
	}
	return n, nil
}

// String returns what is kept, as text.
func (e *ends) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	half := e.most - e.most/2
	tail := e.tail[max(0, len(e.tail)-half):]
	text := string(e.head)
	if left := e.size - len(e.head) - len(tail); left > 0 {
		text += fmt.Sprintf("\n[… %d bytes are left out …]\n", left)
	}
	return strings.ToValidUTF8(text+string(tail), "\uFFFD")
}
