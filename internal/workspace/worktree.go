package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dfaf701a/nestor"
)

// chooseWorktree says what a run's worktree is to be. From is the folder whose
// checkout it is made of.
func (s *Spaces) chooseWorktree(ctx context.Context, project, from string, known bool, rec *record) error {
	repo, err := s.git.open(ctx, from)
	switch {
	case errors.Is(err, errNoRepository):
		return fmt.Errorf("a worktree needs a git repository, and %s is in none: run git init there and commit, or use kind %q", from, Plain)
	case err != nil:
		return fmt.Errorf("looking for the git repository of %s: %w", from, err)
	}
	if err := s.chooseBase(ctx, repo, rec); err != nil {
		return err
	}
	rec.From, rec.Top = from, worktreeOf(project, rec.Run)
	rec.Dir, rec.Branch = filepath.Join(rec.Top, repo.sub), branchName(rec.Run, rec.Slug)

	// If we know nothing of the run but git does, what it has is taken up.
	names, err := repo.plumb(ctx, "for-each-ref", "--format=%(refname)", "refs/heads/nestor/"+string(rec.Run)+"*")
	if err != nil {
		return err
	}
	for ref := range strings.SplitSeq(names, "\n") {
		if ref == "" || strings.HasSuffix(ref, elsewhere) {
			continue
		}
		rec.Branch = strings.TrimPrefix(ref, "refs/heads/")
		if rec.Base, err = repo.plumb(ctx, "merge-base", "--end-of-options", ref, rec.Base); err != nil {
			return fmt.Errorf("branch %s has nothing in common with its base: %w", rec.Branch, err)
		}
		break
	}
	if _, err := os.Lstat(rec.Top); err == nil && !known {
		if _, err := os.Stat(repo.admin(rec.Run)); err != nil {
			return fmt.Errorf("%s is there, and is no worktree of this repository: move it away", rec.Top)
		}
		rec.State = open
	}
	return nil
}

// chooseBase says where a branch begins, and what it is merged into.
func (s *Spaces) chooseBase(ctx context.Context, repo *repository, rec *record) error {
	base := s.options.Base
	if base == "" {
		if repo.head == "" {
			return fmt.Errorf("a worktree needs a commit to begin with, and %s has none: commit something, or use kind %q", repo.common, Plain)
		}
		rec.Base, rec.BaseRef = repo.head, repo.branch
		return nil
	}
	if strings.HasPrefix(base, "-") || holdsControl(base) {
		return fmt.Errorf("base %.100q: want a branch or a commit", base)
	}
	var err error
	ref := "refs/heads/" + strings.TrimPrefix(base, "refs/heads/")
	if rec.Base, err = repo.commit(ctx, ref); err != nil {
		return err
	}
	if rec.Base != "" {
		rec.BaseRef = ref
		return nil
	}
	if rec.Base, err = repo.commit(ctx, base); err == nil && rec.Base == "" {
		err = fmt.Errorf("base %.100q: %s has no such branch or commit: see git branch --all", base, repo.common)
	}
	return err
}

// admin is where git keeps what it knows of a run's worktree.
func (r *repository) admin(run nestor.ID) string {
	return filepath.Join(r.common, "worktrees", string(run))
}

// openWorktree makes the worktree of a run, or takes up the one it had.
func (sp *Space) openWorktree(ctx context.Context) error {
	repo, err := sp.spaces.git.holding(sp.lock).open(ctx, sp.rec.From)
	if err != nil {
		return fmt.Errorf("looking for the git repository of %s: %w", sp.rec.From, err)
	}
	sp.repo, sp.shadow = repo, sp.spaces.shadowOf(repo, sp.home, sp.rec)
	if sp.rec.State != opening {
		_, err := os.Stat(sp.rec.Top)
		if err == nil {
			_, err = os.Stat(repo.admin(sp.rec.Run))
			if err != nil {
				return fmt.Errorf("git knows nothing of the worktree %s any more: move it away, and it is made anew from branch %s", sp.rec.Top, sp.rec.Branch)
			}
			return errors.Join(sp.pointBack(), sp.note(open))
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		sp.spaces.log.Warn("worktree is gone, making it anew", "run", sp.rec.Run, "dir", sp.rec.Top)
	}
	if err := sp.note(opening); err != nil {
		return err
	}
	if err := sp.build(ctx); err != nil {
		return errors.Join(err, sp.unbuild(context.WithoutCancel(ctx)))
	}
	return sp.note(open)
}

// shadowOf is the shadow of a run's worktree.
func (s *Spaces) shadowOf(repo *repository, home string, rec record) *shadow {
	sh := &shadow{
		git: repo.git, dir: filepath.Join(home, "git"), index: filepath.Join(home, "index"), tree: rec.Top, format: repo.format,
		objects: repo.objects, base: rec.Base, exclude: filepath.Join(repo.common, "info", "exclude"),
	}
	for _, name := range s.options.Copy {
		sh.left = append(sh.left, filepath.Join(repo.sub, name))
	}
	return sh
}

// build makes the worktree. Nobody has worked in it yet, so what is left of an
// earlier try goes.
func (sp *Space) build(ctx context.Context) error {
	rec, repo := &sp.rec, sp.repo
	if err := repo.removeWorktree(ctx, sp.home, rec.Top, rec.Run); err != nil {
		return err
	}
	tip, err := repo.commit(ctx, "refs/heads/"+rec.Branch)
	if err != nil {
		return err
	}
	args := []string{"worktree", "add", "--no-checkout", "-b", rec.Branch, rec.Top, rec.Base}
	if tip != "" {
		args = []string{"worktree", "add", "--no-checkout", "--force", rec.Top, rec.Branch}
	}
	err = alone(ctx, sp.home, func() error {
		_, err := repo.plumb(ctx, args...)
		return err
	})
	if err != nil {
		return err
	}
	if tip == "" {
		tip = rec.Base
	}
	os.Remove(sp.shadow.index)
	if err := sp.shadow.prepare(); err != nil {
		return err
	}
	// Git's own checkout would run the filters that the repository names.
	if _, err := sp.shadow.run(ctx, nil, "read-tree", "--reset", "-u", tip); err != nil {
		return err
	}
	if err := copyIndex(sp.shadow.index, filepath.Join(repo.admin(rec.Run), "index")); err != nil {
		return err
	}
	if err := os.MkdirAll(rec.Dir, 0o777); err != nil {
		return err
	}
	if err := sp.copyFiles(ctx); err != nil {
		return err
	}
	return sp.setup(ctx)
}

// unbuild takes back what build did, unless there was work on the branch.
func (sp *Space) unbuild(ctx context.Context) error {
	err := sp.repo.removeWorktree(ctx, sp.home, sp.rec.Top, sp.rec.Run)
	tip, tipErr := sp.repo.commit(ctx, "refs/heads/"+sp.rec.Branch)
	if err = errors.Join(err, tipErr); err != nil {
		return err // as opening, it is made anew or collected
	}
	if tip == sp.rec.Base {
		if _, err := sp.repo.plumb(ctx, "update-ref", "-d", "refs/heads/"+sp.rec.Branch, tip); err != nil {
			return err
		}
	}
	return os.RemoveAll(sp.home)
}

// pointBack sees that the worktree belongs to its repository: a run may have made
// it point elsewhere, and whoever uses git there next would follow.
func (sp *Space) pointBack() error {
	name, want := filepath.Join(sp.rec.Top, ".git"), "gitdir: "+sp.repo.admin(sp.rec.Run)+"\n"
	info, err := os.Lstat(name)
	switch {
	case err == nil && info.IsDir():
		return nil // a repository of the run's own: it is work
	case err == nil && info.Mode().IsRegular() && info.Size() < 64<<10:
		if text, err := os.ReadFile(name); err == nil && string(text) == want {
			return nil
		}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return replaceFile(name, []byte(want))
}

// removeWorktree removes a worktree's folder, and what git knows of it.
func (r *repository) removeWorktree(ctx context.Context, home, top string, run nestor.ID) error {
	if err := removeAll(top); err != nil {
		return err
	}
	return alone(ctx, home, func() error { return os.RemoveAll(r.admin(run)) })
}

// alone does what reads or changes the list of worktrees, one run after the other:
// git gives up when it meets one that is being made or removed.
func alone(ctx context.Context, home string, do func() error) error {
	lock, err := waitLock(ctx, filepath.Join(filepath.Dir(home), "worktrees.lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	return do()
}

// removeAll removes a folder, also what may not be written in it.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			root.Chmod(name, 0o700) // before it is read; what cannot be changed is in the error below
		}
		return nil
	})
	root.Close()
	return os.RemoveAll(dir)
}

// discard removes all that there is of a run, whose lock the caller has.
func (s *Spaces) discard(ctx context.Context, project, home string, rec record, lock *os.File) error {
	if err := s.release(ctx, home); err != nil {
		return err
	}
	if rec.Kind == Worktree {
		top := worktreeOf(project, rec.Run)
		repo, err := s.git.holding(lock).open(ctx, rec.From)
		switch {
		case errors.Is(err, errNoRepository) || errors.Is(err, fs.ErrNotExist):
			err = removeAll(top)
		case err == nil:
			if err = repo.removeWorktree(ctx, home, top, rec.Run); err == nil {
				err = repo.removeBranch(ctx, rec.Branch)
			}
		}
		if err != nil {
			return err
		}
	}
	return os.RemoveAll(home)
}

// removeBranch removes a branch with all that is on it.
func (r *repository) removeBranch(ctx context.Context, branch string) error {
	if !strings.HasPrefix(branch, "nestor/") {
		return fmt.Errorf("branch %.100q is none of ours", branch)
	}
	ref := "refs/heads/" + branch
	tip, err := r.commit(ctx, ref)
	if err != nil || tip == "" {
		return err
	}
	_, err = r.plumb(ctx, "update-ref", "-d", ref, tip)
	return err
}
