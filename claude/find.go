package claude

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// MinVersion is the oldest CLI that speaks the protocol this package speaks.
const MinVersion = "2.0.0"

// PathVariable names the environment variable that Find trusts before it
// looks anywhere else.
const PathVariable = "CLAUDE_CLI"

// NotFoundError says where Find looked for the CLI and why each place failed.
type NotFoundError struct {
	Tried []Place
}

// Place is one place where Find looked.
type Place struct {
	Path string // the file, or what was asked: "claude on PATH"
	Err  error  // why it is not the CLI
}

func (e *NotFoundError) Error() string {
	var b strings.Builder
	b.WriteString("claude code not found")
	for _, p := range e.Tried {
		fmt.Fprintf(&b, "\n  %s: %v", p.Path, p.Err)
	}
	b.WriteString("\ninstall it with 'npm install -g @anthropic-ai/claude-code', or set " + PathVariable + " to its path")
	return b.String()
}

// Find returns the path of the Claude CLI: what the environment variable
// CLAUDE_CLI says, or claude on the PATH, or the first of the places where
// its installers put it. A CLAUDE_CLI that is set and unusable is an error:
// Find does not guess past it. The error is a *NotFoundError.
func Find() (string, error) {
	if path := os.Getenv(PathVariable); path != "" {
		if err := executable(path); err != nil {
			return "", &NotFoundError{Tried: []Place{{Path: "$" + PathVariable + " = " + path, Err: err}}}
		}
		return path, nil
	}
	path, err := exec.LookPath("claude")
	if err == nil {
		return path, nil
	}
	tried := []Place{{Path: "claude on PATH", Err: reason(err)}}
	for _, path := range installed() {
		err := executable(path)
		if err == nil {
			return path, nil
		}
		tried = append(tried, Place{Path: path, Err: err})
	}
	return "", &NotFoundError{Tried: tried}
}

// installed lists where installers put the CLI when it is not on the PATH.
func installed() []string {
	home, err := os.UserHomeDir()
	if err != nil {
		home = ""
	}
	if runtime.GOOS == "windows" {
		return []string{filepath.Join(home, ".local", "bin", "claude.exe")}
	}
	return []string{
		filepath.Join(home, ".local", "bin", "claude"),
		filepath.Join(home, ".claude", "local", "claude"),
		filepath.Join(home, ".npm-global", "bin", "claude"),
		"/usr/local/bin/claude",
		filepath.Join(home, "node_modules", ".bin", "claude"),
		filepath.Join(home, ".yarn", "bin", "claude"),
	}
}

func executable(path string) error {
	_, err := exec.LookPath(path)
	if errors.Is(err, exec.ErrDot) {
		return nil // given by name on purpose
	}
	return reason(err)
}

// reason strips the path from err: the caller prints it already.
func reason(err error) error {
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return err
}

var versionLine = regexp.MustCompile(`^(\d+)\.(\d+)\.(\d+)`)

// Version asks the CLI at path for its version, such as "2.1.325". The CLI
// sees an empty home and none of the caller's environment but PATH.
func Version(ctx context.Context, path string) (string, error) {
	home, err := os.MkdirTemp("", "claude-version-")
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", path, err)
	}
	defer os.RemoveAll(home)
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "DISABLE_AUTOUPDATER=1"}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("asking %s for its version: %w", path, err)
	}
	v := versionLine.Find(out)
	if v == nil {
		return "", fmt.Errorf("asking %s for its version: it answered %.80q", path, out)
	}
	return string(v), nil
}

// Supported tells whether version, as returned by [Version], is new enough.
func Supported(version string) bool {
	have, want := parseVersion(version), parseVersion(MinVersion)
	for i := range have {
		if have[i] != want[i] {
			return have[i] > want[i]
		}
	}
	return true
}

// parseVersion returns zeros for what is not a version.
func parseVersion(v string) (parts [3]int) {
	for i, digits := range versionLine.FindStringSubmatch(v) {
		if i > 0 {
			parts[i-1], _ = strconv.Atoi(digits)
		}
	}
	return parts
}
