package claude

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"time"
)

// worktrees returns the worktrees of the git repository that dir is in, none
// if there is no repository or git does not answer within five seconds.
func worktrees(ctx context.Context, dir string) []string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// The repository is not ours: nothing it configures may run.
	cmd := exec.CommandContext(ctx, "git", "-c", "core.hooksPath="+os.DevNull, "-c", "core.fsmonitor=false",
		"worktree", "list", "--porcelain")
	cmd.Dir = dir
	cmd.Env = gitEnvironment(os.Environ())
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	var dirs []string
	for line := range strings.Lines(string(out)) {
		if path, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "worktree "); ok {
			dirs = append(dirs, path)
		}
	}
	return dirs
}

// gitEnvironment returns env without what would point git at another
// repository than that of its directory.
func gitEnvironment(env []string) []string {
	var clean []string
	for _, kv := range env {
		if !strings.HasPrefix(strings.ToUpper(kv), "GIT_") {
			clean = append(clean, kv)
		}
	}
	return append(clean, "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0")
}
