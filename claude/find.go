package claude

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
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

// NotFoundError says where the CLI was looked for and why each place failed.
type NotFoundError struct {
	Tried []Place
	Given bool // it was not looked for: Options.Path says where it is
}

// Place is one place where Find looked.
type Place struct {
	Path string // the file, or what was asked: "claude on PATH"
	Err  error  // why it is not the CLI
}

func (e *NotFoundError) Error() string { return e.text(runtime.GOOS) }

func (e *NotFoundError) text(goos string) string {
	var b strings.Builder
	b.WriteString("Claude Code not found")
	for _, p := range e.Tried {
		fmt.Fprintf(&b, "\n  %s: %v", p.Path, p.Err)
	}
	if e.Given {
		return b.String() + "\nthe path was given, so it was not looked for elsewhere"
	}
	install := "npm install -g @anthropic-ai/claude-code"
	if goos == "windows" {
		install = "irm https://claude.ai/install.ps1 | iex" // npm installs a .cmd file, which is refused
	}
	fmt.Fprintf(&b, "\ninstall it with '%s', or set %s to its path", install, PathVariable)
	return b.String()
}

// Find returns the path of the Claude CLI: what the environment variable
// CLAUDE_CLI says, or claude on the PATH, or the first of the places where
// its installers put it. A CLAUDE_CLI that is set and unusable is an error:
// Find does not guess past it. The error is a *NotFoundError.
//
// On Windows the batch file that npm installs is refused, because no argument
// is safe in front of cmd.exe; Find looks for claude.exe behind it.
func Find() (string, error) {
	home, _ := os.UserHomeDir() // empty only makes the places useless
	return finder{
		goos:     runtime.GOOS,
		home:     home,
		override: os.Getenv(PathVariable),
		lookPath: exec.LookPath,
	}.find()
}

// finder is the world that Find looks at.
type finder struct {
	goos     string
	home     string
	override string // the value of CLAUDE_CLI
	lookPath func(file string) (string, error)
}

func (f finder) find() (string, error) {
	if f.override != "" {
		err := f.executable(f.override)
		if err == nil {
			return f.override, nil
		}
		return "", &NotFoundError{Tried: []Place{{Path: "$" + PathVariable + " = " + f.override, Err: err}}}
	}
	var tried []Place
	path, err := f.lookPath("claude")
	if err == nil && f.goos == "windows" && !nativeProgram(path) {
		// npm's batch file or script. The program may be on the PATH too.
		if exe, lookErr := f.lookPath("claude.exe"); lookErr == nil && nativeProgram(exe) {
			path = exe
		}
	}
	if err == nil {
		err = refuseBatch(f.goos, path)
	}
	if err == nil {
		return path, nil
	}
	tried = append(tried, Place{Path: "claude on PATH", Err: reason(err)})
	for _, path := range f.installed() {
		err := f.executable(path)
		if err == nil {
			return path, nil
		}
		tried = append(tried, Place{Path: path, Err: err})
	}
	return "", &NotFoundError{Tried: tried}
}

// installed lists where installers put the CLI when it is not on the PATH.
func (f finder) installed() []string {
	if f.goos == "windows" {
		return []string{filepath.Join(f.home, ".local", "bin", "claude.exe")}
	}
	return []string{
		filepath.Join(f.home, ".local", "bin", "claude"),
		filepath.Join(f.home, ".claude", "local", "claude"),
		filepath.Join(f.home, ".npm-global", "bin", "claude"),
		"/usr/local/bin/claude",
		filepath.Join(f.home, "node_modules", ".bin", "claude"),
		filepath.Join(f.home, ".yarn", "bin", "claude"),
	}
}

func (f finder) executable(path string) error {
	if err := refuseBatch(f.goos, path); err != nil {
		return err
	}
	_, err := f.lookPath(path)
	if errors.Is(err, exec.ErrDot) {
		return nil // given by name on purpose
	}
	return reason(err)
}

// nativeProgram tells whether Windows runs path without an interpreter.
func nativeProgram(path string) bool {
	path = strings.ToLower(path)
	return strings.HasSuffix(path, ".exe") || strings.HasSuffix(path, ".com")
}

// refuseBatch refuses batch files on Windows: cmd.exe reads their arguments
// anew, and a quote in a prompt could run a program. Windows ignores dots and
// spaces at the end of a name and takes what follows a colon for a stream, so
// every part of the path counts.
func refuseBatch(goos, path string) error {
	if goos != "windows" {
		return nil
	}
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' || r == ':' }) {
		part = strings.ToLower(strings.TrimRight(part, ". "))
		if strings.HasSuffix(part, ".bat") || strings.HasSuffix(part, ".cmd") {
			return fmt.Errorf("%s is a batch file, and cmd.exe would read its arguments anew: use claude.exe of the native installer", path)
		}
	}
	return nil
}

// program returns the CLI that the options mean.
func (o *Options) program() (string, error) {
	if o.Path == "" {
		return Find()
	}
	if err := refuseBatch(runtime.GOOS, o.Path); err != nil {
		return "", badOption("Path: %w", err)
	}
	return o.Path, nil
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

var versionLine = pattern(`^(\d+)\.(\d+)\.(\d+)`)

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
	v := versionLine().Find(out)
	if v == nil {
		return "", fmt.Errorf("asking %s for its version: it answered %.80q", path, out)
	}
	return string(v), nil
}

// SkipVersionVariable names the environment variable that, when it is not
// empty, keeps a session from asking the CLI for its version.
const SkipVersionVariable = "CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK"

// versionTimeout is how long a session waits for the CLI's version.
const versionTimeout = 2 * time.Second

// warnVersion logs when the CLI at path is too old. It never fails: a CLI
// that does not say its version may still work.
func warnVersion(ctx context.Context, log *slog.Logger, path string) {
	if log == nil || os.Getenv(SkipVersionVariable) != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	if v, err := Version(ctx, path); err == nil && !Supported(v) {
		log.Warn("the claude cli is too old", "version", v, "minimum", MinVersion, "path", path)
	}
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
	for i, digits := range versionLine().FindStringSubmatch(v) {
		if i > 0 {
			parts[i-1], _ = strconv.Atoi(digits)
		}
	}
	return parts
}
