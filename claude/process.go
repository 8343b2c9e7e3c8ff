package claude

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Command is how the CLI is to be started.
type Command struct {
	Path string
	Args []string // without the program's name
	Dir  string   // empty means the caller's
	Env  []string // all of it
	User string   // the OS user to run as; empty means the caller's
}

// Process is a CLI that was started by [Options.Spawn]: in a container, on
// another machine, or in a test. Its methods are called from several
// goroutines at once.
type Process interface {
	Stdin() io.WriteCloser // closing it must unblock a Write
	Stdout() io.ReadCloser // closing it must unblock a Read
	Stderr() io.ReadCloser // likewise
	// Wait blocks until the process has ended and tells how. It is called
	// once.
	Wait() Exit
	// Terminate asks the process to end, as SIGTERM does.
	Terminate() error
	// Kill ends the process and all that it started, at once.
	Kill() error
}

// Exit is how a process ended.
type Exit struct {
	Code   int    // what it returned; -1 when a signal ended it
	Signal string // such as "killed"; empty when it returned
	Err    error  // why it is not known how it ended; nil normally
}

// markVariable is set, to a value of its own, in the environment of each CLI.
// Whatever the CLI starts inherits it, so that nothing is left behind even
// where a process leaves its group and its parent.
const markVariable = "CLAUDE_SDK_GO_PROCESS"

// localProcess is a CLI on this machine.
type localProcess struct {
	cmd                   *exec.Cmd
	mark                  string // K=V in the environment of it and its children
	stdin, stdout, stderr *os.File
	ended                 chan Exit // sent once by the goroutine that started it
}

// startLocal starts the CLI in a process group of its own. It is killed with
// the caller's process, however that ends.
func startLocal(c Command) (*localProcess, error) {
	if c.Dir != "" { // the system would say that the program does not exist
		if err := isDir(c.Dir); err != nil {
			return nil, &ConnectionError{Op: "starting in " + c.Dir, Err: err}
		}
	}
	p := &localProcess{
		cmd:   exec.Command(c.Path, c.Args...),
		mark:  markVariable + "=" + rand.Text(),
		ended: make(chan Exit, 1),
	}
	p.cmd.Dir, p.cmd.Env = c.Dir, append(c.Env[:len(c.Env):len(c.Env)], p.mark)
	if err := setAttributes(p.cmd, c.User); err != nil {
		return nil, &ConnectionError{Op: "starting as " + c.User, Err: err}
	}
	theirs, err := p.pipes()
	if err != nil {
		return nil, &ConnectionError{Op: "making pipes", Err: err}
	}
	started := make(chan error)
	go func() {
		// Linux ends the child when the thread that started it ends, so this
		// one stays for as long as the child lives. Then it is given back: with a
		// goroutine that holds it it would end, and all else that it started.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		for _, f := range theirs {
			f.Close()
		}
		started <- err
		if err == nil {
			p.ended <- exitOf(p.cmd.Wait())
		}
	}()
	if err := <-started; err != nil {
		p.closePipes()
		return nil, startError(c.Path, err)
	}
	return p, nil
}

// pipes connects the command with three pipes and returns its ends of them.
// They are files, so that Wait waits for the process alone and not for what
// it started and left its pipes to.
func (p *localProcess) pipes() (theirs []*os.File, err error) {
	var in, out, errOut *os.File
	defer func() {
		if err != nil {
			for _, f := range []*os.File{in, out, errOut} {
				f.Close() // a nil file is fine
			}
			p.closePipes()
		}
	}()
	if in, p.stdin, err = os.Pipe(); err != nil {
		return nil, err
	}
	if p.stdout, out, err = os.Pipe(); err != nil {
		return nil, err
	}
	if p.stderr, errOut, err = os.Pipe(); err != nil {
		return nil, err
	}
	widen(p.stdout)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, errOut
	return []*os.File{in, out, errOut}, nil
}

func (p *localProcess) closePipes() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		f.Close()
	}
}

func (p *localProcess) Stdin() io.WriteCloser { return p.stdin }
func (p *localProcess) Stdout() io.ReadCloser { return p.stdout }
func (p *localProcess) Stderr() io.ReadCloser { return p.stderr }

func (p *localProcess) Wait() Exit { return <-p.ended }

func (p *localProcess) Terminate() error { return terminate(p.cmd.Process) }

// Kill also ends what is left of the CLI's children after it has ended
// itself.
func (p *localProcess) Kill() error {
	err := killGroup(p.cmd.Process)
	killMarked(p.mark)
	return err
}

func exitOf(err error) Exit {
	e, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return Exit{}
	case !ok:
		return Exit{Code: -1, Err: err}
	}
	return Exit{Code: e.ExitCode(), Signal: signalOf(e.ProcessState)}
}

func isDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return reason(err)
	}
	if !info.IsDir() {
		return errors.New("not a directory")
	}
	return nil
}

// startError tells a program that is not there from one that does not run.
func startError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Stat(path); statErr == nil {
			return &ConnectionError{Op: "starting " + path, Err: fmt.Errorf("%w: the file is there, but not what it needs to run, such as its loader (a musl build on a glibc system?)", reason(err))}
		}
		return &NotFoundError{Tried: []Place{{Path: path, Err: reason(err)}}}
	}
	if tooLong(err) {
		return &ConnectionError{Op: "starting " + path, Err: fmt.Errorf("%w: the options make the command line too long", reason(err))}
	}
	return &ConnectionError{Op: "starting " + path, Err: reason(err)}
}

// tailSize is how much of the CLI's stderr errors quote.
const tailSize = 4096

// stderrTail keeps the last part of what is written to it.
type stderrTail struct{ text string }

func (t *stderrTail) add(line string) {
	t.text += line + "\n"
	if len(t.text) > 2*tailSize {
		t.text = strings.ToValidUTF8(t.text[len(t.text)-tailSize:], "")
	}
}

// killWait is how long a killed process may take to be gone.
const killWait = 5 * time.Second
