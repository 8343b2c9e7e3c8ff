// Package claudetest helps to test what is built on package claude.
//
// [Fake] and [Replay] stand in for the CLI: the test binary itself plays a
// [Script] or a recorded conversation, so that tests need neither the CLI nor a
// network nor an account. Both need [Main] in TestMain. [Real] is the CLI itself
// in a home of its own, and [TestStore] is the suite that every session store
// must pass.
package claudetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// SkipVariable names the environment variable that skips the tests which need
// the real CLI, when it is set to 1. Nothing else skips them.
const SkipVariable = "NESTOR_SKIP_REAL_CLI"

// CLI is the real Claude CLI with a throw-away home: it sees neither the
// settings nor the credentials of the person who runs the tests.
type CLI struct {
	Path string   // of the executable
	Home string   // its home, empty at first
	Dir  string   // its working directory, empty at first
	Env  []string // its whole environment
}

// Real returns the CLI that 'make tools' installed, for the length of the
// test, with env added to its environment. Without it the test fails.
func Real(t testing.TB, env ...string) *CLI {
	t.Helper()
	if os.Getenv(SkipVariable) == "1" {
		t.Skipf("%s=1: not tested against the real Claude CLI", SkipVariable)
	}
	cli, err := Install(t.TempDir(), env...)
	if err != nil {
		t.Fatal(err)
	}
	return cli
}

// Install returns the CLI that 'make tools' installed, with its home and
// working directory made below dir.
func Install(dir string, env ...string) (*CLI, error) {
	path, err := installed()
	if err != nil {
		return nil, err
	}
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	cli := &CLI{Path: path, Home: filepath.Join(dir, "home"), Dir: filepath.Join(dir, "work")}
	for _, d := range []string{cli.Home, cli.Dir, filepath.Join(dir, "tmp")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, err
		}
	}
	cli.Env = append([]string{
		"HOME=" + cli.Home, "TMPDIR=" + filepath.Join(dir, "tmp"),
		"PATH=" + os.Getenv("PATH"), "LANG=" + os.Getenv("LANG"),
	}, env...)
	return cli, nil
}

// installed finds the executable below the tools folder of this folder's
// module, or of the module around it.
func installed() (string, error) {
	file := filepath.Join("tools", "node_modules", "@anthropic-ai", "claude-code-"+platform(), "claude")
	if runtime.GOOS == "windows" {
		file += ".exe"
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, file)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("the real Claude CLI is not installed (%s): run 'make tools', or set %s=1 to go without", file, SkipVariable)
		}
		dir = up
	}
}

// platform is what npm calls this operating system and processor.
func platform() string {
	goos, arch := runtime.GOOS, runtime.GOARCH
	if goos == "windows" {
		goos = "win32"
	}
	if arch == "amd64" {
		arch = "x64"
	}
	return goos + "-" + arch
}

// Command returns the CLI's command with args, not started. When ctx ends it
// is terminated, and killed if that does not help.
func (c *CLI) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Path, args...)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}
