package daemon_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor/agent/scripted"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/daemon"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/sandbox"
)

// roleVariable makes the test binary play a daemon, with these settings.
const roleVariable = "NESTOR_TEST_DAEMON"

func TestMain(m *testing.M) {
	if text := os.Getenv(roleVariable); text != "" {
		var s settings
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			panic(err)
		}
		if err := s.play(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if file := os.Getenv(attackVariable); file != "" {
		if err := playAttacker(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if text := os.Getenv(remoteVariable); text != "" {
		if err := playMachine(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	disinherit()
	// The NATS client leaves it behind when an object is put into its store before this
	// goroutine, which is started for that, has once run.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}

// disinherit drops what this process need not have, so that no daemon hands it on: the
// CLI is to see nothing of who runs the tests.
func disinherit() {
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "PATH", "LANG", "HOME", "TMPDIR":
		default:
			if !strings.HasPrefix(name, "GO") && !strings.HasPrefix(name, "NESTOR_") {
				os.Unsetenv(name)
			}
		}
	}
}

// settings are those of a daemon in a process of its own.
type settings struct {
	Dir      string
	Script   string   // of provider scripted
	URL      string   // of the model, for provider api
	Path     string   // of the CLI, for provider sdk
	Env      []string // of the CLI
	Slots    int
	Provider string

	Workspace daemon.Workspaces
	Roles     map[string]permission.RoleSpec
	Pass      []string
	Limits    sandbox.Limits
	Hosts     []string
}

func (s settings) options() daemon.Options {
	o := daemon.Options{Dir: s.Dir, Worker: daemon.Worker{Slots: s.Slots, Provider: s.Provider}}
	if s.Script != "" {
		turns, err := scripted.Parse("script", []byte(s.Script))
		if err != nil {
			panic(err)
		}
		o.Worker.Script = turns
	}
	o.Worker.API.BaseURL, o.Worker.API.APIKey = s.URL, "key"
	o.Worker.Limits, o.Worker.Hosts = s.Limits, s.Hosts
	o.Worker.Workspace, o.Worker.Roles, o.Worker.Pass = s.Workspace, s.Roles, append(s.Pass, "GORACE", "GOCOVERDIR")
	o.Worker.SDK.Path, o.Worker.SDK.Env = s.Path, s.Env
	return o
}

// play is a daemon until it is killed or interrupted. It says when it is ready.
func (s settings) play() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	d := daemon.New(s.options())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	select {
	case <-d.Ready():
		fmt.Println("ready")
	case err := <-done:
		return err
	}
	return <-done
}

// process is a daemon in a process of its own.
type process struct {
	cmd   *exec.Cmd
	ended chan error // what Wait returned, sent once
}

// start starts a daemon and returns when it is ready.
func (s settings) start(t *testing.T) *process {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	// What it starts must not take itself for a daemon.
	cmd.Env = append(os.Environ(), roleVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	apart(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	p := &process{cmd, make(chan error, 1)}
	go func() { p.ended <- cmd.Wait() }()
	if err != nil || line != "ready\n" {
		cmd.Process.Kill()
		t.Fatalf("the daemon does not start: %q, %v, %v", line, err, <-p.ended)
	}
	return p
}

// kill kills the process.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// stop ends the process as Ctrl-C would.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.cmd.Process.Signal(os.Interrupt)
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		p.kill()
		t.Error("the daemon does not end")
	}
}

func (s settings) client(t *testing.T) *api.Client {
	c := api.NewClient(daemon.SocketPath(s.Dir))
	t.Cleanup(c.Close)
	return c
}

// leftovers returns the processes of runs that are alive.
func leftovers(t *testing.T, dir string) (list []string) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		env, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(env), "NESTOR_RUN_ID=") && strings.Contains(string(env), "AGENT_WORKSPACE="+dir) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
			list = append(list, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return list
}
