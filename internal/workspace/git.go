package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	gitTime   = 5 * time.Minute // for one command
	gitOutput = 256 << 20       // bytes that one command may say
)

// gitSettings come before every command, so that what a repository's own
// configuration says makes git start nothing. Filters and drivers of diffs and
// merges have names that cannot be foreseen: commands that would use them work
// with a configuration of ours, see [shadow].
var gitSettings = []string{
	"--no-pager", "--literal-pathspecs", "--no-optional-locks",
	"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false",
	"-c", "core.excludesFile=" + os.DevNull, "-c", "core.attributesFile=" + os.DevNull,
	"-c", "core.sshCommand=false", "-c", "core.askPass=", "-c", "credential.helper=", "-c", "protocol.allow=never",
	"-c", "core.fsync=committed,reference", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "submodule.recurse=false", "-c", "core.bigFileThreshold=8m",
	"-c", "commit.gpgSign=false", "-c", "core.splitIndex=false", "-c", "index.sparse=false", "-c", "core.safecrlf=false", "-c", "advice.detachedHead=false",
}

// gitError is a git command that said no.
type gitError struct {
	command string
	code    int
	stderr  string
}

func (e *gitError) Error() string {
	text := strings.TrimSpace(e.stderr)
	if text == "" {
		text = fmt.Sprintf("exit code %d", e.code)
	}
	return fmt.Sprintf("git %s: %s", e.command, text)
}

// errCut says that a command was ended because it had said enough.
var errCut = errors.New("the output is longer than allowed")

// errNoGit says that there is no git.
var errNoGit = errors.New("git is not installed: install it, or name the command")

// git runs commands of git. The zero git is the one in PATH.
type git struct {
	command string
	hold    []*os.File // locks that a command keeps if it outlives this process
}

// holding returns a git whose commands keep a lock, too.
func (g git) holding(lock *os.File) git {
	g.hold = append(g.hold[:len(g.hold):len(g.hold)], lock)
	return g
}

// call is one command of git.
type call struct {
	dir   string // where it works; empty means the system's temporary folder
	repo  string // GIT_DIR; empty lets git find it from dir
	tree  string // GIT_WORK_TREE; empty means none
	env   []string
	stdin io.Reader
	max   int // bytes of output; zero means gitOutput
	args  []string
}

// command is its name.
func (c call) command() string {
	args := c.args
	for len(args) > 2 && args[0] == "-c" {
		args = args[2:]
	}
	return args[0]
}

// run returns what a command says. It is a [*gitError] if git says no; errCut
// comes with the part that is allowed.
func (g git) run(ctx context.Context, c call) ([]byte, error) {
	command := g.command
	if command == "" {
		command = "git"
	}
	file, err := exec.LookPath(command)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoGit, err)
	}
	ctx, stop := context.WithTimeoutCause(ctx, gitTime, fmt.Errorf("git %s took longer than %v", c.command(), gitTime))
	defer stop()
	if c.max == 0 {
		c.max = gitOutput
	}
	cmd := exec.CommandContext(ctx, file, append(gitSettings[:len(gitSettings):len(gitSettings)], c.args...)...)
	cmd.Dir = c.dir
	if cmd.Dir == "" {
		cmd.Dir = os.TempDir()
	}
	cmd.Env = append(gitEnviron(c), c.env...)
	cmd.Stdin = c.stdin
	if runtime.GOOS != "windows" { // where files cannot be handed on
		cmd.ExtraFiles = g.hold
	}
	out, said := &bounded{max: c.max}, &bounded{max: 4 << 10, rest: true}
	cmd.Stdout, cmd.Stderr = out, said
	// Asked, git removes its locks; after that it has no choice.
	cmd.Cancel = func() error { return interrupt(cmd.Process) }
	cmd.WaitDelay = 5 * time.Second
	setGroup(cmd)
	err = cmd.Run()
	switch exit, ok := errors.AsType[*exec.ExitError](err); {
	case out.cut:
		return out.Bytes(), errCut
	case ctx.Err() != nil:
		return nil, fmt.Errorf("git %s: %w", c.command(), context.Cause(ctx))
	case ok:
		return out.Bytes(), &gitError{c.command(), exit.ExitCode(), said.String()}
	case err != nil:
		return nil, fmt.Errorf("git %s: %w", c.command(), err)
	}
	return out.Bytes(), nil
}

// line returns what a command says, without the newline at its end.
func (g git) line(ctx context.Context, c call) (string, error) {
	out, err := g.run(ctx, c)
	return strings.TrimSuffix(string(out), "\n"), err
}

// gitEnviron is the environment of a command: the process's, without what changes
// the meaning of git commands.
func gitEnviron(c call) []string {
	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		name = strings.ToUpper(name)
		if strings.HasPrefix(name, "GIT_") || strings.HasPrefix(name, "LC_") || name == "LANGUAGE" || name == "LANG" || name == "SSH_ASKPASS" {
			continue
		}
		env = append(env, entry)
	}
	env = append(env, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_PAGER=cat", "GIT_EDITOR=false",
		"GIT_AUTHOR_NAME=nestor", "GIT_AUTHOR_EMAIL=nestor@localhost", "GIT_COMMITTER_NAME=nestor", "GIT_COMMITTER_EMAIL=nestor@localhost")
	if c.repo != "" {
		env = append(env, "GIT_DIR="+c.repo, "GIT_CONFIG_GLOBAL="+os.DevNull)
	}
	if c.tree != "" {
		env = append(env, "GIT_WORK_TREE="+c.tree)
	}
	return env
}

// bounded keeps so many bytes and no more. It fails at the one after them, unless
// the rest is to be thrown away.
type bounded struct {
	bytes.Buffer
	max  int
	rest bool
	cut  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if room := b.max - b.Len(); len(p) > room {
		b.Buffer.Write(p[:room])
		if b.rest {
			return len(p), nil
		}
		b.cut = true
		return room, errCut
	}
	return b.Buffer.Write(p)
}

// ReadFrom is here so that nobody uses the buffer's, which knows no bound.
func (b *bounded) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{b}, r)
}

// repository is a git repository, and the place in it that was asked for.
type repository struct {
	git
	common  string // its own folder, such as .git of the main checkout
	objects string
	top     string // of the checkout that was asked from; empty for a bare one
	sub     string // from there to the folder that was asked for; empty for the top itself
	format  string // of object names: sha1, sha256
	branch  string // refs/heads/… that is checked out there; empty if none is
	head    string // the commit; empty if there is none yet
	private string // the git folder of this checkout: common, or one below it
}

// errNoRepository says that a folder is in no git repository.
var errNoRepository = errors.New("it is in no git repository")

// open looks for the repository around a folder. This is the one command that
// reads the user's own configuration, for safe.directory.
func (g git) open(ctx context.Context, dir string) (*repository, error) {
	text, err := g.line(ctx, call{dir: dir, args: []string{"rev-parse", "--path-format=absolute", "--git-common-dir", "--git-dir", "--is-bare-repository", "--show-object-format"}})
	if refused, ok := errors.AsType[*gitError](err); ok && strings.Contains(refused.stderr, "not a git repository") {
		return nil, errNoRepository
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Split(text, "\n")
	if len(lines) != 4 {
		return nil, fmt.Errorf("git rev-parse said %.200q: a name with a newline cannot be used", text)
	}
	r := &repository{git: g, common: lines[0], private: lines[1], objects: filepath.Join(lines[0], "objects"), format: lines[3]}
	if lines[2] != "true" {
		if r.top, err = g.line(ctx, call{dir: dir, args: []string{"rev-parse", "--path-format=absolute", "--show-toplevel"}}); err != nil {
			return nil, err // dir is inside of .git
		}
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, err
		}
		if r.sub, err = filepath.Rel(r.top, real); err != nil || !filepath.IsLocal(r.sub) {
			return nil, fmt.Errorf("%s is not below %s, where git says that it is", dir, r.top)
		}
		if r.sub == "." {
			r.sub = ""
		}
	}
	r.head, err = g.line(ctx, call{repo: r.private, args: []string{"rev-parse", "--quiet", "--verify", "HEAD^{commit}"}})
	if _, ok := errors.AsType[*gitError](err); err != nil && !ok {
		return nil, err
	}
	r.branch, err = g.line(ctx, call{repo: r.private, args: []string{"symbolic-ref", "--quiet", "HEAD"}})
	if _, ok := errors.AsType[*gitError](err); err != nil && !ok {
		return nil, err
	}
	if !strings.HasPrefix(r.branch, "refs/heads/") {
		r.branch = ""
	}
	return r, nil
}

// plumb runs a command that is about commits and names, and touches no file that
// is checked out.
func (r *repository) plumb(ctx context.Context, args ...string) (string, error) {
	return r.line(ctx, call{repo: r.common, args: args})
}

// commit returns the commit that a name stands for; empty if it stands for none.
func (r *repository) commit(ctx context.Context, name string) (string, error) {
	text, err := r.plumb(ctx, "rev-parse", "--quiet", "--verify", "--end-of-options", name+"^{commit}")
	if _, ok := errors.AsType[*gitError](err); ok {
		return "", nil
	}
	return text, err
}

// treeOf returns the tree of a commit.
func (r *repository) treeOf(ctx context.Context, commit string) (string, error) {
	return r.plumb(ctx, "rev-parse", "--quiet", "--verify", "--end-of-options", commit+"^{tree}")
}

// isAncestor tells whether all of a is in b.
func (r *repository) isAncestor(ctx context.Context, a, b string) (bool, error) {
	_, err := r.plumb(ctx, "merge-base", "--is-ancestor", a, b)
	if refused, ok := errors.AsType[*gitError](err); ok && refused.code == 1 {
		return false, nil
	}
	return err == nil, err
}

// move makes a name stand for a commit if it stands for old now, which is empty
// if there is no such name.
func (r *repository) move(ctx context.Context, ref, commit, old, why string) error {
	if old == "" {
		old = strings.Repeat("0", len(commit))
	}
	_, err := r.plumb(ctx, "update-ref", "-m", why, "--create-reflog", ref, commit, old)
	return err
}
