package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// keep confines this process, starts the command, and ends it and all that it
// started when it, or the supervisor, ends.
func keep(trial bool, args []string) {
	words := os.NewFile(wordFD, "words")
	last := func(w word) {
		json.NewEncoder(words).Encode(w)
		os.Exit(0)
	}
	broken := func(err error) { last(word{Error: err.Error(), Code: ExitFailure}) }
	o, argv, err := parseArguments(args)
	if err != nil {
		broken(err)
	}
	lost := make(chan struct{}) // closed when the supervisor is gone
	go func() {
		os.NewFile(leashFD, "leash").Read(make([]byte, 1))
		if o.Private { // all ends with this process
			os.Exit(1)
		}
		close(lost)
	}()
	signals := make(chan os.Signal, 16) // sent by package signal
	signal.Notify(signals, forwarded...)
	if !o.Private {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			broken(fmt.Errorf("becoming the reaper: %w", err))
		}
	}
	if o.Loopback {
		if err := o.openOutlet(); err != nil {
			broken(fmt.Errorf("making a network: %w", err))
		}
	}
	if o.Level == Files || o.Level == Strict {
		if err := confine(o); err != nil {
			broken(err)
		}
	}
	if trial {
		last(word{})
	}
	if err := o.Limits.set(); err != nil {
		broken(err)
	}
	if err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		broken(fmt.Errorf("closing descriptors: %w", err))
	}
	child, err := start(argv, o.environ(os.Environ()))
	if err != nil {
		last(notRun(argv[0], err))
	}
	exceeded := make(chan string, 1) // sent once, by watch
	if o.Limits != (Limits{}) && len(o.Group) == 0 {
		go o.Limits.watch(exceeded)
	}
	ended := make(chan syscall.WaitStatus, 1) // sent once, by reap
	go func() { ended <- reap(child) }()
	// All signals are sent by this thread: up to Landlock 7 each thread is
	// confined apart from the others, and may reach what it has started alone.
	var w word
	for {
		select {
		case s := <-signals:
			syscall.Kill(child, s.(syscall.Signal))
		case w.Limit = <-exceeded:
			syscall.Kill(child, syscall.SIGKILL)
		case <-lost:
			killBelow()
			os.Exit(1)
		case status := <-ended:
			if !o.Private {
				killBelow()
			}
			w.Status = int(status)
			last(w)
		}
	}
}

// environ is the environment of the command, made of the keeper's.
func (o orders) environ(env []string) []string {
	env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, procsVariable+"=") })
	if o.Procs != nil {
		env = append(env, procsVariable+"="+*o.Procs)
	}
	return env
}

// start starts the command as the leader of a process group.
func start(argv, env []string) (pid int, err error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return 0, err
	}
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env:   env,
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
}

// notRun tells like a shell why a command was not run.
func notRun(name string, err error) word {
	w := word{Code: 126, Error: fmt.Sprintf("starting %s: %v", name, err)}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		w.Code = 127
		w.Error += "; if it is there, the program that its first line names is not, or it is not among what the command may read"
	case errors.Is(err, fs.ErrPermission):
		w.Error += "; perhaps it is not among what the command may read"
	}
	return w
}

// reap waits for everything that is handed to this process, until the child has
// ended, and returns how it did.
func reap(child int) syscall.WaitStatus {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if pid == child && err == nil {
			return status
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return 0xff00 // cannot be: there is the child
		}
	}
}
