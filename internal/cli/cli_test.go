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

// quickExit spares each nestor under -race a second of sleep when it exits.
const quickExit = "GORACE=atexit_sleep_ms=20"

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
			env.Vars = append(env.Vars, quickExit)
			return nil
		},
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
	resp, err := http.Get(base + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, stdout)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	if got := stderr.String(); !strings.HasPrefix(got, "1 200 /v1/models") || strings.Count(got, "\n") != 1 {
		t.Errorf("stderr is %q, want one line for the request", got)
	}
}
