package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

const setupTime = 10 * time.Minute

// copyFiles puts what git does not have into a new worktree, such as .env. What is
// there already stays, and what the project does not have is left out.
func (sp *Space) copyFiles(ctx context.Context) error {
	if len(sp.spaces.options.Copy) == 0 || sp.repo.top == "" {
		return nil
	}
	from, err := os.OpenRoot(filepath.Join(sp.repo.top, sp.repo.sub))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenRoot(filepath.Join(sp.rec.Top, sp.repo.sub))
	if err != nil {
		return err
	}
	defer to.Close()
	for _, name := range sp.spaces.options.Copy {
		clean := path.Clean(filepath.ToSlash(name))
		if err := checkPath(clean); err != nil {
			return fmt.Errorf("copying into the worktree: %w: want a path inside of the project", err)
		}
		c := &copying{options: Options{}.withDefaults(), where: from.Name(), from: from, to: to}
		if err := c.into(ctx, clean); err != nil {
			return fmt.Errorf("copying %s into the worktree: %w", clean, err)
		}
	}
	return nil
}

// into copies what is at name to the same name.
func (c *copying) into(ctx context.Context, name string) error {
	if _, err := c.from.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := c.to.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if dir := path.Dir(name); dir != "." {
		if err := c.to.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	err := fs.WalkDir(c.from.FS(), name, func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case isPrivate(d.Name()) && d.IsDir():
			return fs.SkipDir
		case isPrivate(d.Name()):
			return nil
		}
		return c.one(ctx, name, d)
	})
	for i := len(c.late) - 1; i >= 0 && err == nil; i-- {
		err = c.settle(c.late[i])
	}
	return err
}

// setup runs the command that makes a new worktree ready. When it is over, so is
// all that it started.
func (sp *Space) setup(ctx context.Context) error {
	o := sp.spaces.options
	if len(o.Setup) == 0 {
		return nil
	}
	limit := o.SetupTime
	if limit == 0 {
		limit = setupTime
	}
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v", limit))
	defer stop()
	argv := o.Setup
	if o.Wrap != nil {
		if argv = o.Wrap(argv); len(argv) == 0 {
			return errors.New("running the set-up: nothing is left of its command")
		}
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = filepath.Join(sp.rec.Top, sp.repo.sub)
	env := sp.env
	if env == nil {
		env = os.Environ()
	}
	for _, entry := range env {
		if !isOurs(entry) {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, sp.Env...)
	cmd.Env = append(cmd.Env, "NESTOR_RUN_ID="+string(sp.rec.Run), "NESTOR_PROJECT="+sp.rec.From, "NESTOR_BRANCH="+sp.rec.Branch)
	said := &lastBytes{max: 4 << 10}
	err := runGroup(ctx, cmd, said)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("running the set-up %q in %s: %w\n%s", o.Setup, sp.rec.Dir, err, strings.TrimSpace(strings.ToValidUTF8(string(said.tail), "\ufffd")))
	}
	return nil
}

// runGroup runs a command to its end, and ends what it left in its group.
func runGroup(ctx context.Context, cmd *exec.Cmd, said io.Writer) error {
	// A pipe of ours: what is left in the background does not keep Wait waiting.
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	cmd.Cancel = func() error { return interrupt(cmd.Process) }
	cmd.WaitDelay = 2 * time.Second
	setGroup(cmd)
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		return err
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(said, r)
	}()
	err = cmd.Wait()
	killGroup(cmd.Process)
	r.SetReadDeadline(time.Now().Add(time.Second)) // what left the group may hold it still
	<-read
	return err
}

// isOurs tells whether a variable is not for commands of a project.
func isOurs(entry string) bool {
	for _, prefix := range []string{"GIT_", "NESTOR_", "ANTHROPIC_", "CLAUDE"} {
		if strings.HasPrefix(entry, prefix) {
			return true
		}
	}
	return false
}

// lastBytes keeps the end of what is written.
type lastBytes struct {
	tail []byte
	max  int
}

func (l *lastBytes) Write(p []byte) (int, error) {
	l.tail = append(l.tail, p...)
	if over := len(l.tail) - l.max; over > 0 {
		l.tail = append(l.tail[:0], l.tail[over:]...)
	}
	return len(p), nil
}
