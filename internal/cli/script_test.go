package cli_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptCommands are what the scripts can do besides what testscript brings.
//
//	exits CODE PROGRAM ARGS…         run it; it must end with that exit code
//	start NAME [K=V…] PROGRAM ARGS…  run it beside the script, with its output in NAME.out and NAME.err
//	waitline FILE PATTERN            wait until a line of the file matches
//	signal NAME INT|TERM|KILL        signal what was started
//	ended NAME CODE                  wait for its end; stdout and stderr are its output then
//	keep NAME FILE PATTERN           set the variable NAME to what the group in the pattern matches
//	record NAME ttyout|stdout COLS ROWS  compare the session with the recording NAME
func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"exits": exits, "start": start, "waitline": waitLine, "signal": signalStarted, "ended": ended, "keep": keep,
		"record": record,
	}
}

// scriptPatience is how long a script waits for what must come.
const scriptPatience = 30 * time.Second

func arguments(ts *testscript.TestScript, neg bool, args []string, least int, usage string) {
	if neg || len(args) < least {
		ts.Fatalf("usage: %s", usage)
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "exits CODE PROGRAM ARGS…")
	checkCode(ts, args[0], ts.Exec(args[1], args[2:]...))
}

func checkCode(ts *testscript.TestScript, want string, err error) {
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(got) != want {
		ts.Fatalf("it ended with %d, want %s", got, want)
	}
}

// process is one that a script started.
type process struct {
	*exec.Cmd
	done chan struct{} // closed by the goroutine that waits for its end
	err  error         // of Wait; set before that
}

// ended is closed when p has ended; nil, which never is, for no process.
func (p *process) ended() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.done
}

type startedKey struct{}

// setUpStarted lets a script start processes, which end with it.
func setUpStarted(env *testscript.Env) {
	all := map[string]*process{} // of the script's goroutine
	env.Values[startedKey{}] = all
	env.Defer(func() {
		for _, p := range all {
			p.Process.Kill()
			<-p.done
		}
	})
}

func start(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "start NAME [K=V…] PROGRAM ARGS…")
	name, args := args[0], args[1:]
	var env []string
	for _, key := range []string{"HOME", "PATH", "TMPDIR", "WORK", "XDG_CONFIG_HOME", "GORACE", "NESTOR_ENV_PASS", "GOCOVERDIR"} {
		if value := ts.Getenv(key); value != "" {
			env = append(env, key+"="+value)
		}
	}
	for len(args) > 1 && strings.Contains(args[0], "=") {
		env, args = append(env, args[0]), args[1:]
	}
	program, err := exec.LookPath(args[0])
	ts.Check(err)
	cmd := exec.Command(program, args[1:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), env
	out, err := os.Create(ts.MkAbs(name + ".out"))
	ts.Check(err)
	defer out.Close()
	errs, err := os.Create(ts.MkAbs(name + ".err"))
	ts.Check(err)
	defer errs.Close()
	cmd.Stdout, cmd.Stderr = out, errs
	all := ts.Value(startedKey{}).(map[string]*process)
	if old := all[name]; old != nil {
		select {
		case <-old.done:
		default:
			ts.Fatalf("%s is still running", name)
		}
	}
	hup := make(chan os.Signal, 1) // below nohup, it would be ignored by who is started, too
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	ts.Check(cmd.Start())
	p := &process{Cmd: cmd, done: make(chan struct{})}
	all[name] = p
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
}

func startedProcess(ts *testscript.TestScript, name string) *process {
	p := ts.Value(startedKey{}).(map[string]*process)[name]
	if p == nil {
		ts.Fatalf("nothing was started as %q", name)
	}
	return p
}

func signalStarted(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "signal NAME INT|TERM|HUP|KILL")
	sig, ok := map[string]os.Signal{"INT": os.Interrupt, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "KILL": os.Kill}[args[1]]
	if !ok {
		ts.Fatalf("no signal %s", args[1])
	}
	ts.Check(startedProcess(ts, args[0]).Process.Signal(sig))
}

func ended(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "ended NAME CODE")
	p := startedProcess(ts, args[0])
	late := time.AfterFunc(scriptPatience, func() { p.Process.Kill() })
	<-p.done
	inTime := late.Stop()
	for _, name := range []string{".out", ".err"} {
		ts.Logf("[%s%s]\n%s", args[0], name, ts.ReadFile(args[0]+name))
	}
	if !inTime {
		ts.Fatalf("%s does not end", args[0])
	}
	if p.ProcessState.ExitCode() < 0 { // by a signal
		if args[1] != "killed" {
			ts.Fatalf("%s was killed, want %s", args[0], args[1])
		}
		return
	}
	checkCode(ts, args[1], p.err)
}

func waitLine(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "waitline FILE PATTERN")
	waitFor(ts, args[0], args[1])
}

// waitFor returns what matches the pattern in the file once something does. It
// does not wait for a process that has ended.
func waitFor(ts *testscript.TestScript, file, pattern string) []string {
	re, err := regexp.Compile("(?m)" + pattern)
	ts.Check(err)
	ctx, stop := context.WithTimeout(context.Background(), scriptPatience)
	defer stop()
	writer := ts.Value(startedKey{}).(map[string]*process)[strings.TrimSuffix(file, filepath.Ext(file))]
	for over := false; ; {
		data, _ := os.ReadFile(ts.MkAbs(filepath.FromSlash(file)))
		if match := re.FindStringSubmatch(string(data)); match != nil {
			return match
		}
		if over {
			ts.Fatalf("nothing in %s matches %q, and who wrote it has ended", file, pattern)
		}
		select {
		case <-writer.ended():
			over = true // what it wrote last is looked at once more
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			ts.Fatalf("nothing in %s matches %q; it holds\n%s", file, pattern, data)
		}
	}
}

func keep(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, "keep NAME FILE PATTERN")
	var match []string
	if args[1] == "stdout" || args[1] == "stderr" {
		re, err := regexp.Compile("(?m)" + args[2])
		ts.Check(err)
		match = re.FindStringSubmatch(ts.ReadFile(args[1]))
	} else {
		match = waitFor(ts, args[1], args[2])
	}
	if len(match) != 2 {
		ts.Fatalf("%q matches nothing, or has no group", args[2])
	}
	ts.Setenv(args[0], match[1])
}
