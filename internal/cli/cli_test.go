package cli_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dfaf701a/nestor/internal/cli"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"nestor": func() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

// quickExit spares each nestor under -race a second of sleep when it exits; with
// passQuickExit, those that an agent starts too.
const (
	quickExit     = "GORACE=atexit_sleep_ms=20"
	passQuickExit = "NESTOR_ENV_PASS=GORACE"
)

// TestScripts runs one file per behaviour. $BIN holds nestor alone, for
// scripts that set PATH.
func TestScripts(t *testing.T) {
	nestor, err := exec.LookPath("nestor")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("BIN", filepath.Dir(nestor))
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Vars = append(env.Vars, quickExit, passQuickExit)
			setUpStarted(env)
			return nil
		},
		Cmds: scriptCommands(),
	})
}

// It is no script because the request needs the address that serve prints.
func TestModelServeUntilInterrupt(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "nestor", "model", "serve")
	cmd.Env = append(os.Environ(), quickExit)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	base, found := "", false
	for lines := bufio.NewScanner(stdout); !found && lines.Scan(); {
		base, found = strings.CutPrefix(lines.Text(), "export ANTHROPIC_BASE_URL=")
	}
	if got := post(t, base+"/v1/messages", `{"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "good\nmorning"}]}`); !strings.Contains(got, `good\nmorning`) {
		t.Errorf("no echo in %s", got)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, stdout)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	if got, want := stderr.String(), `1 POST /v1/messages 200 m turn 1 rule "echo" "good\nmorning"`+"\n"; got != want {
		t.Errorf("stderr is %q, want %q", got, want)
	}
}

func post(t *testing.T, url, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", "anything")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}
