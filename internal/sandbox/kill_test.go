//go:build linux

package sandbox

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/internal/soak"
)

// forks starts processes in every way that is known to outlive a parent. Each
// says "up" and holds standard output for as long as it lives.
const forks = `
trap '' TERM HUP INT
setsid sh -c 'echo up; exec sleep 1000' &
nohup sh -c 'echo up; exec sleep 1000' 2>/dev/null &
(setsid sh -c '(echo up; exec sleep 1000) &' &)
env -i setsid sh -c '(setsid sh -c "echo up; exec /bin/sleep 1000" &)' &
disown -a
echo up
`

const perFork = 5 // that say "up"

// promised is how soon nothing is left of a daemon that was killed: the kernel does
// it. It was 0.05 s in most of a hundred rounds, and 0.21 s in the worst, on two
// processors with a load of 15.
const promised = 2 * time.Second

// gone waits until nobody holds the other end of the pipe any more.
func gone(t testing.TB, r *os.File, within time.Duration) {
	t.Helper()
	began := time.Now()
	r.SetReadDeadline(began.Add(within))
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatalf("something still lives: %v", err)
	}
	t.Logf("nothing was left after %v", time.Since(began).Round(time.Millisecond))
}

// up waits until n processes have said that they are.
func up(t testing.TB, r *os.File, n int) {
	t.Helper()
	r.SetReadDeadline(time.Now().Add(60 * time.Second))
	lines := bufio.NewReaderSize(r, 16)
	for i := range n {
		if line, err := lines.ReadString('\n'); line != "up\n" {
			t.Fatalf("process %d of %d said %q: %v", i, n, line, err)
		}
	}
}

func TestWhatIsLeftEndsWithTheCommand(t *testing.T) {
	modes(t, func(t *testing.T, level Level, private bool) {
		for name, how := range map[string]func(*exec.Cmd){
			"the command ends":          func(*exec.Cmd) {},
			"the command is terminated": func(cmd *exec.Cmd) { cmd.Process.Signal(syscall.SIGUSR1) },
			"the supervisor is killed":  func(cmd *exec.Cmd) { cmd.Process.Kill() },
			"its group is killed":       func(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) },
		} {
			script := forks
			if name != "the command ends" {
				script += "while :; do sleep 0.1; done"
			} else {
				script += "read line" // which comes when all are up
			}
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := command(t, Profile{Level: level}, private, t.TempDir(), "bash", "-c", script)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			cmd.Stdout = w
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			up(t, r, perFork)
			how(cmd)
			in.Close()
			cmd.Wait()
			gone(t, r, 20*time.Second)
			r.Close()
		}
	})
}

// A command that kills all it can see, the keeper first, ends itself alone.
func TestKeeperThatIsKilled(t *testing.T) {
	modes(t, func(t *testing.T, level Level, private bool) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var stderr bytes.Buffer
		cmd := command(t, Profile{Level: level}, private, t.TempDir(), "bash", "-c", forks+`read line; kill -9 $PPID; sleep 0.2; kill -9 -1 2>/dev/null; exit 3`)
		if !private { // where a mistake of ours would reach everybody
			cmd = command(t, Profile{Level: level}, private, t.TempDir(), "bash", "-c", forks+`read line; kill -9 $PPID; sleep 1000`)
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = w, &stderr
		if level != Off && !private && Check().Landlock < 6 {
			t.Skip("Landlock before version 6 does not keep signals inside")
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		up(t, r, perFork)
		in.Close()
		cmd.Wait()
		gone(t, r, 20*time.Second)
		if code := cmd.ProcessState.ExitCode(); private && code != 3 || !private && code != ExitFailure {
			t.Errorf("it ended with %v and wrote %q", cmd.ProcessState, &stderr)
		}
	})
}

// TestNothingOutlivesADaemonThatIsKilled runs five rounds, and a hundred with
// NESTOR_SOAK=1.
func TestNothingOutlivesADaemonThatIsKilled(t *testing.T) {
	const commands = 10
	rounds := soak.Of(5, 100)
	r := Check()
	for round := range rounds {
		level := levels[round%len(levels)].Level
		private := round%2 == 0 && r.Root
		if level != Off && r.Landlock == 0 {
			level = Off
		}
		out, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		daemon := exec.Command(self(t), "daemon", string(level), strconv.FormatBool(private), t.TempDir(), strconv.Itoa(commands))
		daemon.Stdout, daemon.Stderr = w, os.Stderr
		if err := daemon.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		up(t, out, commands*perFork)
		daemon.Process.Kill()
		daemon.Wait()
		gone(t, out, promised)
		out.Close()
	}
}

// playDaemon starts commands that fork, and waits. Half of them are told by the
// kernel when their parent ends, as package claude sees to.
func playDaemon(args []string) int {
	level, private, dir := Level(args[0]), args[1] == "true", args[2]
	n, _ := strconv.Atoi(args[3])
	t := &roleT{}
	for i := range n {
		cmd := command(t, Profile{Level: level}, private, dir, "bash", "-c", forks+"sleep 1000")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if i%2 == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		}
		runtime.LockOSThread()
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	select {}
}

// roleT lets a role use what tests use.
type roleT struct{ testing.TB }

func (*roleT) Helper()           {}
func (*roleT) Cleanup(func())    {}
func (*roleT) Fatal(args ...any) { fmt.Fprintln(os.Stderr, args...); os.Exit(1) }

// Descendants are found also when a program has an evil name.
func TestUsageOfAnEvilName(t *testing.T) {
	dir := t.TempDir()
	evil := filepath.Join(dir, ") S 1 1 ((9")
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(evil, text, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(evil, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	u := usage()
	if u.processes != 1 || u.memory < 0 || u.cpu > time.Hour || !strings.Contains(fmt.Sprint(below("self")), strconv.Itoa(cmd.Process.Pid)) {
		t.Errorf("it uses %+v", u)
	}
}
