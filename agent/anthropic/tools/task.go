package tools

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	markVariable = "NESTOR_TOOLS"         // marks all that a set started
	taskVariable = "NESTOR_TOOLS_TASK"    // marks all that one command started
	grace        = 2 * time.Second        // between asking a command to end and killing it
	settle       = 300 * time.Millisecond // how long output may take after the end of a command
	maxRunning   = 32                     // commands at once
)

// task is a command that the set started.
type task struct {
	id      string
	mark    string // in the environment of all that it starts
	command string
	cmd     *exec.Cmd
	out     *output
	ended   <-chan struct{} // closed when the command itself has ended

	mu      sync.Mutex // guards what follows
	stopped string     // why it was ended, if it was
}

func newMark() string { return rand.Text() }

// start runs a shell command, in a process group of its own, where the shell
// is. Where it is at the end is written to the file at where, if it ends well.
func (s *Set) start(command, where string) (*task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	running := 0
	for _, t := range s.tasks {
		if !t.over() {
			running++
		}
	}
	if running >= maxRunning {
		return nil, tell("%d commands are running already. Stop some of them with TaskStop.", running)
	}
	if info, err := os.Stat(s.cwd); err != nil || !info.IsDir() {
		s.cwd = s.folders[0].path // where it was is gone
	}
	id := "b" + strings.ToLower(rand.Text()[:8])
	out, w, err := s.newOutput(id)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	script := "eval " + quote(command) + " < /dev/null"
	if where != "" {
		script += " && { command pwd -P >| " + quote(where) + " || true; } 2>/dev/null"
	}
	cmd := s.opts.Command(s.shell, "-c", script)
	mark := taskVariable + "=" + s.mark + "." + id
	cmd.Dir, cmd.Env = s.cwd, append(s.environ(s.cwd), mark)
	cmd.Stdout, cmd.Stderr = w, w
	setAttributes(cmd)
	s.started = true
	ended, err := launch(cmd)
	if err != nil {
		out.read.Close()
		return nil, fmt.Errorf("starting %s: %w", s.shell, err)
	}
	t := &task{id: id, mark: mark, command: command, cmd: cmd, out: out, ended: ended}
	s.tasks[id] = t
	s.work.Go(out.drain)
	return t, nil
}

// launch starts a command, and closes ended when it is over. Linux ends it with
// the thread that started it, so that one stays for as long as the command runs.
func launch(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	started, over := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
			close(over)
		}
	}()
	return over, <-started
}

// over tells whether the command itself has ended.
func (t *task) over() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// code returns the exit code of a command that is over, as shells have it.
func (t *task) code() int { return exitCode(t.cmd.ProcessState) }

// stop ends the command and all that it started, and notes why.
func (t *task) stop(why string) {
	t.mu.Lock()
	if t.stopped == "" && !t.over() {
		t.stopped = why
	}
	t.mu.Unlock()
	endTasks([]*task{t})
	killMarked(t.mark)
}

func (t *task) reason() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stopped
}

// endTasks asks commands and their groups to end, and kills what does not.
func endTasks(tasks []*task) {
	for _, t := range tasks {
		t.signal(false)
	}
	limit := time.NewTimer(grace)
	defer limit.Stop()
	late := false
	for _, t := range tasks {
		if late {
			break
		}
		select {
		case <-t.ended:
		case <-limit.C:
			late = true
		}
	}
	for _, t := range tasks {
		t.signal(true)
	}
	// What was killed ends at once, unless it is stuck in the kernel.
	limit.Reset(grace)
	for _, t := range tasks {
		select {
		case <-t.ended:
		case <-limit.C:
			return
		}
	}
}

// signal reaches the command and its group; when the command is over, what it
// left in its group.
func (t *task) signal(kill bool) {
	signalGroup(t.cmd.Process, t.over(), kill)
}

// settled waits until all output is there, or somebody else has the pipe and
// keeps it.
func (t *task) settled() {
	limit := time.NewTimer(settle)
	defer limit.Stop()
	select {
	case <-t.out.done:
	case <-limit.C:
	}
}

// await waits for the command. When ctx ends first, the command is ended, and
// the cause returned.
func (t *task) await(ctx context.Context, limit time.Duration) (timedOut bool, err error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-t.ended:
	case <-timer.C:
		timedOut = true
		t.stop("timed out")
	case <-ctx.Done():
		t.stop("cancelled")
		return false, context.Cause(ctx)
	}
	t.settled()
	return timedOut, nil
}

// task returns a command by its id.
func (s *Set) task(id string) (*task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tasks[id]
	if !ok {
		return nil, tell("No task found with ID: %s", clip(id, 100))
	}
	return t, nil
}

// environ returns the environment of a command that runs in dir.
func (s *Set) environ(dir string) []string { return environ(s.opts.BaseEnv, s.opts.Env, dir, s.mark) }

// environ returns what is inherited, without what belongs to this process
// alone, with own added.
func environ(base, own []string, dir, mark string) []string {
	if base == nil {
		base = os.Environ()
	}
	var env []string
	for _, kv := range base {
		if !private(kv) {
			env = append(env, kv)
		}
	}
	env = append(env, "GIT_EDITOR=true")
	env = append(env, own...)
	return append(env, "PWD="+dir, markVariable+"="+mark)
}

// private tells which variables commands never inherit: keys, tokens, and what
// would make a Claude CLI believe that it runs inside another.
func private(kv string) bool {
	name, _, _ := strings.Cut(strings.ToUpper(kv), "=")
	for _, prefix := range []string{"ANTHROPIC_", "CLAUDE", "NESTOR_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "AI_AGENT"
}

// quote makes text one word of a shell command.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
