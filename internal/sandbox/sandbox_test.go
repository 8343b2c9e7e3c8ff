//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// levels are all levels, by a profile each.
var levels = []Profile{{Level: Off}, {Level: Files}, {Level: Strict}}

// modes runs the test at each level, and at those that confine also as on a
// machine where no namespaces can be had.
func modes(t *testing.T, f func(t *testing.T, level Level, private bool)) {
	r := Check()
	for _, p := range levels {
		for _, private := range []bool{true, false} {
			name := fmt.Sprintf("%s private=%v", p.Level, private)
			switch {
			case p.Level == Off && private:
				continue // has no root of its own
			case p.Level != Off && r.Landlock == 0:
				t.Run(name, func(t *testing.T) { t.Skip(r.Why) })
				continue
			case p.Level != Off && private && !r.Root:
				t.Run(name, func(t *testing.T) { t.Skip(r.Why) })
				continue
			}
			t.Run(name, func(t *testing.T) { f(t, p.Level, private) })
		}
	}
}

// command returns the command that the profile makes of argv, in dir, which is
// writable. It ends with the test.
func command(t testing.TB, p Profile, private bool, dir string, argv ...string) *exec.Cmd {
	t.Helper()
	p.Write = append(p.Write, dir)
	p.Read = append(p.Read, self(t))
	line := wrapped(t, p, private)(argv)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(stop)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Dir = dir
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "LANG=C", "GORACE=" + quickExit}
	return cmd
}

// wrapped is Wrap, as on a machine without namespaces if private is false.
func wrapped(t testing.TB, p Profile, private bool) func([]string) []string {
	t.Helper()
	w, err := Wrap(p)
	if err != nil {
		t.Fatal(err)
	}
	if private {
		return w
	}
	line := w([]string{"x"})
	o, _, err := parseArguments(line[2:])
	if err != nil {
		t.Fatal(err)
	}
	o.Private, o.Isolated, o.User = false, false, false
	args, err := o.arguments()
	if err != nil {
		t.Fatal(err)
	}
	return func(argv []string) []string {
		return append(append([]string{line[0], line[1]}, args...), argv...)
	}
}

func self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommandEndsAsItWould(t *testing.T) {
	modes(t, func(t *testing.T, level Level, private bool) {
		for _, tt := range []struct {
			argv   []string
			code   int
			signal syscall.Signal
			stderr string
		}{
			{argv: []string{"true"}},
			{argv: []string{"sh", "-c", "exit 7"}, code: 7},
			{argv: []string{"sh", "-c", "exit 255"}, code: 255},
			{argv: []string{"sh", "-c", "kill -KILL $$"}, signal: syscall.SIGKILL},
			{argv: []string{"sh", "-c", "kill -TERM $$"}, signal: syscall.SIGTERM},
			{argv: []string{"sh", "-c", "kill -SEGV $$"}, signal: syscall.SIGSEGV},
			{argv: []string{"sh", "-c", "kill -PIPE $$"}, signal: syscall.SIGPIPE},
			{argv: []string{"sh", "-c", "echo oops >&2; exit 3"}, code: 3, stderr: "oops\n"},
			{argv: []string{"no-such-program"}, code: 127, stderr: "nestor: sandbox: starting no-such-program: "},
			{argv: []string{"/etc"}, code: 126, stderr: "nestor: sandbox: starting /etc: "},
		} {
			var stderr bytes.Buffer
			cmd := command(t, Profile{Level: level}, private, t.TempDir(), tt.argv...)
			cmd.Stderr = &stderr
			cmd.Run()
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			switch {
			case tt.signal != 0 && (!status.Signaled() || status.Signal() != tt.signal):
				t.Errorf("%q ended with %v, not by %v: %s", tt.argv, cmd.ProcessState, tt.signal, &stderr)
			case tt.signal == 0 && status.ExitStatus() != tt.code:
				t.Errorf("%q ended with %v, not %d: %s", tt.argv, cmd.ProcessState, tt.code, &stderr)
			case !strings.HasPrefix(stderr.String(), tt.stderr), tt.stderr == "" && stderr.Len() > 0:
				t.Errorf("%q wrote %q to standard error", tt.argv, &stderr)
			}
		}
	})
}

func TestCommandHasStandardFilesAndFolder(t *testing.T) {
	modes(t, func(t *testing.T, level Level, private bool) {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		cmd := command(t, Profile{Level: level}, private, dir, "sh", "-c", `cat; pwd; echo "$V"; ls /proc/self/fd | wc -l`)
		cmd.Stdin = strings.NewReader("hello\n")
		cmd.Env = append(cmd.Env, "V=a b")
		secret, err := os.Open("/etc/passwd") // handed on by exec, on purpose
		if err != nil {
			t.Fatal(err)
		}
		defer secret.Close()
		cmd.ExtraFiles = []*os.File{secret, secret, secret}
		out, err := cmd.Output()
		// ls itself opens the folder that it lists.
		if want := "hello\n" + dir + "\na b\n4\n"; err != nil || string(out) != want {
			t.Errorf("it wrote %q, not %q: %v", out, want, err)
		}
	})
}

func TestSignalsReachTheCommand(t *testing.T) {
	modes(t, func(t *testing.T, level Level, private bool) {
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1} {
			cmd := command(t, Profile{Level: level}, private, t.TempDir(), "bash", "-c",
				fmt.Sprintf("trap 'echo caught; exit 5' %d; echo ready; while :; do sleep 0.05; done", s))
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 64)
			if n, _ := out.Read(buf); string(buf[:n]) != "ready\n" {
				t.Fatalf("it wrote %q", buf[:n])
			}
			cmd.Process.Signal(s)
			n, _ := out.Read(buf)
			cmd.Wait()
			if string(buf[:n]) != "caught\n" || cmd.ProcessState.ExitCode() != 5 {
				t.Errorf("after %v it wrote %q and ended with %v", s, buf[:n], cmd.ProcessState)
			}
		}
	})
}

func TestSandboxThatFailsSaysSo(t *testing.T) {
	for name, args := range map[string][]string{
		"no profile":     {},
		"no number":      {"x", "{}", "--", "true"},
		"too few pieces": {"2", "{}", "--", "true"},
		"negative":       {"-1", "--", "true"},
		"not JSON":       {"1", "{", "--", "true"},
		"no command":     {"1", "{}", "--"},
		"a lost folder":  {"1", `{"level":"files","paths":[{"real":"L25vbmU=","use":2}]}`, "--", "true"},
	} {
		var stderr bytes.Buffer
		cmd := exec.Command(self(t), append([]string{superviseMark}, args...)...)
		cmd.Stderr = &stderr
		cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != ExitFailure || !strings.HasPrefix(stderr.String(), "nestor: sandbox: ") || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: it ended with %v and wrote %q", name, cmd.ProcessState, &stderr)
		}
	}
}

func TestFolderThatIsNotGranted(t *testing.T) {
	if r := Check(); !r.Root {
		t.Skip(r.Why)
	}
	dir := t.TempDir()
	var stderr bytes.Buffer
	cmd := command(t, Profile{Level: Files}, true, dir, "true")
	cmd.Dir, cmd.Stderr = t.TempDir(), &stderr
	cmd.Run()
	if cmd.ProcessState.ExitCode() != ExitFailure || !strings.Contains(stderr.String(), cmd.Dir) {
		t.Errorf("it ended with %v and wrote %q", cmd.ProcessState, &stderr)
	}
}

func TestProfilesThatAreWrong(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		p    Profile
		want string
	}{
		{Profile{Level: "open"}, `"open"; there are: off, files, strict`},
		{Profile{Network: "some"}, `"some"; there are: none, web, all`},
		{Profile{Level: Files, Read: []string{"a/b"}}, `Read names "a/b"`},
		{Profile{Level: Files, Write: []string{"/"}}, "Write names /"},
		{Profile{Level: Files, Write: []string{dir + "/../../../../../../../../.."}}, "Write names /"},
		{Profile{Level: Files, Write: []string{dir + "/none"}}, dir + "/none"},
		{Profile{Level: Files, Hide: []string{"/a\x00b"}}, "Hide names"},
		{Profile{Limits: Limits{Memory: -1}}, "negative"},
	} {
		if _, err := Wrap(tt.p); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: the error is %v, without %q", tt.p, err, tt.want)
		}
	}
}

func TestLimits(t *testing.T) {
	modes(t, func(t *testing.T, level Level, private bool) {
		for _, tt := range []struct {
			limits Limits
			script string
			want   string
		}{
			{Limits{Memory: 100 << 20}, `x=$(head -c 300000000 /dev/zero | tr '\0' x); sleep 60`, "bytes of memory"},
			{Limits{Processes: 20}, "for i in $(seq 40); do sleep 60 & done; wait", "processes"},
			{Limits{CPU: 500 * time.Millisecond}, "while :; do :; done", "processor time"},
			{Limits{CPU: 500 * time.Millisecond}, "while :; do (i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done); done", "processor time"},
			{Limits{Memory: 1 << 30, Processes: 100, CPU: time.Minute}, "exit 0", ""},
		} {
			var stderr bytes.Buffer
			cmd := command(t, Profile{Level: level, Limits: tt.limits}, private, t.TempDir(), "bash", "-c", tt.script)
			cmd.Stderr = &stderr
			err := cmd.Run()
			if tt.want == "" {
				if err != nil || stderr.Len() > 0 {
					t.Errorf("%q ended with %v and wrote %q", tt.script, err, &stderr)
				}
				continue
			}
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if !status.Signaled() || status.Signal() != syscall.SIGKILL || !strings.Contains(stderr.String(), "nestor: sandbox: the command was killed: ") || !strings.Contains(stderr.String(), tt.want) {
				t.Errorf("%q with %+v ended with %v and wrote %q", tt.script, tt.limits, cmd.ProcessState, &stderr)
			}
		}
	})
}

func TestReportOfOlderKernels(t *testing.T) {
	for _, tt := range []struct {
		r       Report
		level   Level
		network Network
		refused bool
		missing int
	}{
		{Report{Why: "none"}, Off, None, false, 0},
		{Report{Why: "none"}, Files, None, true, 5},
		{Report{calls: true, Landlock: 1}, Files, None, false, 6},
		{Report{calls: true, Landlock: 3}, Strict, None, true, 7},
		{Report{calls: true, Landlock: 3}, Strict, All, false, 5},
		{Report{calls: true, Landlock: 3, Root: true, Offline: true}, Strict, None, false, 0},
		{Report{calls: true, Landlock: 7, Root: true, Offline: true}, Strict, Web, false, 2},
		{Report{calls: true, Landlock: 7}, Files, Web, false, 2},
		{Report{calls: true, Landlock: 10}, Strict, None, false, 2},
	} {
		missing, err := tt.r.Missing(tt.level, tt.network), tt.r.Refuses(tt.level, tt.network)
		if len(missing) != tt.missing || (err != nil) != tt.refused {
			t.Errorf("%+v at %s with %s: missing %d %q, refused %v", tt.r, tt.level, tt.network, len(missing), missing, err)
		}
	}
	if err := (Report{Why: "an old kernel"}).Refuses(Files, None); err == nil || !strings.Contains(err.Error(), "an old kernel") || !strings.Contains(err.Error(), "level off") {
		t.Errorf("the error %v names neither why nor the way out", err)
	}
}

func FuzzArguments(f *testing.F) {
	f.Add("1", "{}", "--", "true")
	f.Add("2", `{"paths":[{"real":"L3Vzcg==","use":1}]`, "}", "--")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		o, argv, err := parseArguments([]string{a, b, c, d})
		if err != nil {
			return
		}
		args, err := o.arguments()
		if err != nil {
			t.Fatal(err)
		}
		again, rest, err := parseArguments(append(args, argv...))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(o) || len(rest) != len(argv) {
			t.Errorf("%+v became %+v: %v", o, again, err)
		}
	})
}

func TestProfileOfAnyLengthAndContent(t *testing.T) {
	o := orders{Level: Strict, Network: Web, Limits: Limits{Memory: 1, CPU: time.Second}}
	for i := range 5000 {
		o.Paths = append(o.Paths, place{Real: fmt.Appendf(nil, "/\xff\n\"'%d%s", i, strings.Repeat("x", 80)), Use: useWrite})
	}
	args, err := o.arguments()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range args {
		if len(a) > maxPiece {
			t.Fatalf("an argument has %d bytes", len(a))
		}
	}
	got, argv, err := parseArguments(append(args, "--", "x"))
	if err != nil || fmt.Sprint(got) != fmt.Sprint(o) || len(argv) != 2 {
		t.Errorf("it came back as another: %v, %q", err, argv)
	}
	for range 5000 {
		o.Paths = append(o.Paths, place{Real: bytes.Repeat([]byte("y"), 200)})
	}
	if _, err := o.arguments(); err == nil || !strings.Contains(err.Error(), "name folders") {
		t.Errorf("too long a profile: %v", err)
	}
}
