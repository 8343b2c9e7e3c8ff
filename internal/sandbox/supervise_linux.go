package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that the supervisor passes on to the command.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT,
}

// Descriptors of a keeper.
const (
	leashFD  = 3 // is closed when the supervisor is gone
	wordFD   = 4 // where it says how the command ended
	outletFD = 5 // where it hands over the way out, if there is one
)

// word is what a keeper says of the command, at the end.
type word struct {
	Status int    `json:"status"`          // as wait has it
	Error  string `json:"error,omitempty"` // why it was not run
	Code   int    `json:"code,omitempty"`  // what to exit with then
	Limit  string `json:"limit,omitempty"` // which one was exceeded
}

// A process that a wrapped command line started plays its part before the packages are
// initialized that it has no use for: most of them, which would take half of its time.
func init() { play(os.Args) }

// play plays the part that the first argument names, and does not return if there is
// such a part.
func play(args []string) {
	if len(args) < 2 {
		return
	}
	switch args[1] {
	case superviseMark:
		runtime.LockOSThread() // the keeper dies with the thread that started it
		supervise(args[2:])
	case keepMark, probeMark:
		runtime.LockOSThread() // what confines is inherited from this thread
		keep(args[1] == probeMark, args[2:])
	}
}

// supervise runs the command below a keeper and ends as the command does.
func supervise(args []string) {
	o, argv, err := parseArguments(args)
	switch {
	case err != nil:
		fail(ExitFailure, err.Error())
	case len(argv) == 0:
		fail(ExitFailure, "there is no command")
	}
	parent, err := unix.PidfdOpen(os.Getppid(), 0)
	if err != nil { // it has ended, or is in another namespace
		parent = -1
	}
	// Whatever the keeper leaves is handed to us.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fail(ExitFailure, "becoming the reaper: "+err.Error())
	}
	signals := make(chan os.Signal, 16) // sent by package signal
	signal.Notify(signals, forwarded...)
	var g *group // nil means that the keeper watches the limits
	if len(o.Group) > 0 {
		if g, err = makeGroup(string(o.Group), o.Limits); err != nil {
			fail(ExitFailure, err.Error())
		}
	}
	k, err := startKeeper(keepMark, o, argv, os.Stderr, g)
	if err != nil {
		if g != nil {
			g.remove()
		}
		fail(ExitFailure, err.Error())
	}
	if k.outlet != nil {
		k.handOver(string(o.Outlet))
	}
	gone := make(chan struct{}) // closed when the parent has ended
	orphaned := false
	if parent >= 0 {
		go func() {
			waitEnded(parent)
			close(gone)
		}()
	}
	ended := make(chan word, 1) // sent once, when the keeper has ended
	go func() { ended <- k.wait() }()
	exceeded, over := make(chan string, 1), make(chan struct{}) // sent once, by watch; closed when the keeper has ended
	if g != nil {
		go g.watch(o.Limits, exceeded, over)
	}
	limit := ""
	for {
		select {
		case s := <-signals:
			k.cmd.Process.Signal(s)
		case <-gone:
			k.cmd.Process.Kill()
			gone, orphaned = nil, true
		case limit = <-exceeded:
			g.kill()
		case w := <-ended:
			killBelow()
			if g != nil {
				close(over)
				w = g.end(o.Limits, limit, w)
			}
			o.tell(w)
			if orphaned { // there is nobody to be told
				os.Exit(ExitFailure)
			}
			exitAs(w)
		}
	}
}

// tell takes down which limit was exceeded.
func (o orders) tell(w word) {
	if w.Limit == "" || len(o.Exceeded) == 0 {
		return
	}
	f, err := os.OpenFile(string(o.Exceeded), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return // standard error has it too
	}
	f.WriteString(w.Limit + "\n")
	f.Close()
}

// startedKeeper is a keeper, seen from above.
type startedKeeper struct {
	cmd   *exec.Cmd
	leash *os.File // held for as long as we live
	words *os.File
	// outlet is where it hands over the way out; nil if there is none.
	outlet *os.File
}

// startKeeper starts a keeper in the namespaces that the orders demand.
func startKeeper(mark string, o orders, argv []string, stderr io.Writer, g *group) (*startedKeeper, error) {
	// A keeper has little to do: it is faster started on one processor. What the
	// command is told of them stays as it was.
	if procs, set := os.LookupEnv(procsVariable); set {
		o.Procs = &procs
	}
	args, err := o.arguments()
	if err != nil {
		return nil, err
	}
	leashEnd, leash, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer leashEnd.Close()
	words, wordEnd, err := os.Pipe()
	if err != nil {
		leash.Close()
		return nil, err
	}
	defer wordEnd.Close()
	k := &startedKeeper{leash: leash, words: words}
	files := []*os.File{leashEnd, wordEnd}
	if len(o.Outlet) > 0 {
		ours, theirs, err := socketPair()
		if err != nil {
			k.close()
			return nil, err
		}
		defer theirs.Close()
		k.outlet, files = ours, append(files, theirs)
	}
	if mark == keepMark {
		// What we were handed is not for the command.
		if err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
			k.close()
			return nil, fmt.Errorf("closing descriptors: %w", err)
		}
	}
	cmd := exec.Command("/proc/self/exe", append(append([]string{mark}, args...), argv...)...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), procsVariable+"=1")
	cmd.ExtraFiles = files
	cmd.Stderr = stderr
	if mark == keepMark {
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	} else {
		cmd.Dir = base // which is in every root
	}
	// A session of its own: no terminal can be told to type what the command
	// says, and signals to our group reach it once.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if g != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, g.fd
	}
	if o.Private {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC
		if o.Isolated {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
		}
		if o.User {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			// Who is not root in it keeps no rights through exec, unless asked to.
			cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP}
			if o.Loopback {
				cmd.SysProcAttr.AmbientCaps = append(cmd.SysProcAttr.AmbientCaps, unix.CAP_NET_ADMIN)
			}
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		}
	}
	if err := cmd.Start(); err != nil {
		k.close()
		return nil, fmt.Errorf("starting the keeper: %w", err)
	}
	k.cmd = cmd
	return k, nil
}

// close lets go of a keeper that was not started.
func (k *startedKeeper) close() {
	k.leash.Close()
	k.words.Close()
	if k.outlet != nil {
		k.outlet.Close()
	}
}

// wait returns the keeper's last word when it has ended.
func (k *startedKeeper) wait() word {
	text, err := io.ReadAll(io.LimitReader(k.words, 1<<16))
	k.words.Close()
	ended := k.cmd.Wait()
	k.leash.Close()
	var w word
	switch {
	case err != nil:
		return word{Error: "hearing the keeper: " + err.Error(), Code: ExitFailure}
	case json.Unmarshal(text, &w) != nil:
		if ended == nil {
			ended = errors.New("it said nothing")
		}
		return word{Error: "the keeper was ended: " + ended.Error(), Code: ExitFailure}
	}
	return w
}

// tryKeeper tells whether a keeper can do what the orders demand.
func tryKeeper(o orders) error {
	runtime.LockOSThread() // which must not end before the keeper
	defer runtime.UnlockOSThread()
	var said bytes.Buffer
	k, err := startKeeper(probeMark, o, nil, &said, nil)
	if err != nil {
		return err
	}
	limit := time.AfterFunc(10*time.Second, func() { k.cmd.Process.Kill() })
	defer limit.Stop()
	if w := k.wait(); w.Error != "" {
		return errors.New(w.Error)
	}
	return nil
}

// waitEnded blocks until the process behind the descriptor has ended.
func waitEnded(pidfd int) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
		if n > 0 || err != nil && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// exitAs ends this process as the command ended.
func exitAs(w word) {
	if w.Error != "" {
		fail(w.Code, w.Error)
	}
	if w.Limit != "" {
		say(w.Limit)
	}
	status := syscall.WaitStatus(w.Status)
	if !status.Signaled() {
		os.Exit(status.ExitStatus())
	}
	s := status.Signal()
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // the command's core is enough
	signal.Reset()
	switch s {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL:
		syscall.Kill(os.Getpid(), s)
		time.Sleep(time.Second) // until it arrives
	default:
		// The Go runtime has its own mind about other signals, so somebody else
		// takes our place to be ended by them.
		syscall.Exec("/bin/sh", []string{"sh", "-c", "kill -" + strconv.Itoa(int(s)) + " $$"}, nil)
	}
	os.Exit(128 + int(s))
}

// say writes a line to standard error.
func say(text string) {
	fmt.Fprintf(os.Stderr, "nestor: sandbox: %s\n", bytes.ReplaceAll([]byte(text), []byte("\n"), []byte("; ")))
}

func fail(code int, text string) {
	say(text)
	os.Exit(code)
}
