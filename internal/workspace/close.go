package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// elsewhere is the end of the name of a second branch, for work that a run did
// beside its own.
const elsewhere = ".head"

// Outcome is what became of a run's folder.
type Outcome struct {
	End       End      // what was done: Keep where Merge was asked for and could not be
	Branch    string   // where the work is; empty if it is dropped, or was in no worktree
	Commit    string   // its last commit
	Beside    string   // a second branch with work that was not on the first one
	Into      string   // the branch that it was merged into
	Merged    string   // the commit that this has then
	Why       string   // why it was not merged, or why its folder stays though it was
	Conflicts []string // the paths that keep it from being merged
}

// Close ends the run's use of its folder. In a worktree, work that is not committed
// is committed to the run's branch, unless it is dropped; a branch that cannot be
// merged is kept, and the outcome says why. Folders that are shared stay as they
// are.
//
// The space cannot be used any more, also if Close fails: what was there is there
// still, and Open gives it to the run again.
func (sp *Space) Close(ctx context.Context, end End) (Outcome, error) {
	if sp.lock == nil {
		return Outcome{}, fmt.Errorf("closing the workspace of run %s: %w", sp.rec.Run, errClosed)
	}
	if end == "" {
		if end = sp.spaces.options.End; end == "" {
			end = Keep
		}
	}
	var out Outcome
	var err error
	switch end {
	case Keep, Merge, Drop:
		out, err = sp.close(ctx, end)
	default:
		err = fmt.Errorf("end %.40q: want %s, %s or %s", end, Keep, Merge, Drop)
	}
	err = errors.Join(err, sp.lock.Close())
	sp.lock = nil
	if err != nil {
		return out, fmt.Errorf("closing the workspace of run %s: %w", sp.rec.Run, err)
	}
	return out, nil
}

// Leave lets go of the folder of a run that is not over: all stays as it is, and
// Open gives it to the run again. The space cannot be used any more.
func (sp *Space) Leave() error {
	if sp.lock == nil {
		return errClosed
	}
	err := sp.lock.Close()
	sp.lock = nil
	return err
}

func (sp *Space) close(ctx context.Context, end End) (Outcome, error) {
	project, err := sp.spaces.project()
	if err != nil {
		return Outcome{}, err
	}
	if err := sp.spaces.release(ctx, sp.home); err != nil {
		return Outcome{}, err
	}
	out := Outcome{End: end}
	if sp.rec.Kind != Worktree {
		if out.End = Keep; end == Keep {
			return out, sp.note(kept)
		}
		return out, errors.Join(sp.note(dropping), os.RemoveAll(sp.home))
	}
	if end == Drop {
		return out, sp.drop(ctx, project)
	}
	out.Branch, out.End = sp.rec.Branch, Keep
	stays, err := sp.commit(ctx, &out)
	if err != nil {
		return out, fmt.Errorf("committing the work in %s: %w", sp.rec.Top, err)
	}
	if end == Merge {
		if err := sp.merge(ctx, &out); err != nil {
			return out, fmt.Errorf("merging %s: %w", sp.rec.Branch, err)
		}
	}
	if out.End == Merge && stays == "" {
		return out, sp.drop(ctx, project)
	}
	if out.Why == "" {
		out.Why = stays
	}
	return out, sp.note(kept)
}

// drop removes the worktree and all that is known of it.
func (sp *Space) drop(ctx context.Context, project string) error {
	if err := sp.note(dropping); err != nil {
		return err
	}
	return sp.spaces.discard(ctx, project, sp.home, sp.rec, sp.lock)
}

// commit puts all work on the run's branch. It returns why the folder has to stay
// even if the branch does not.
func (sp *Space) commit(ctx context.Context, out *Outcome) (stays string, err error) {
	if err := sp.pointBack(); err != nil {
		return "", err
	}
	now, err := sp.shadow.capture(ctx)
	if err != nil {
		return "", err
	}
	w, err := sp.repo.where(ctx, sp.rec)
	if err != nil {
		return "", err
	}
	ref, old, parent := "refs/heads/"+sp.rec.Branch, w.tip, w.parent
	if w.beside {
		tree, err := sp.repo.treeOf(ctx, parent)
		if err != nil {
			return "", err
		}
		if w.behind && tree == now.id {
			out.Commit = w.tip // it looks at what it did before, and changed nothing
			return staysFor(now, sp.rec.Top), nil
		}
		ref += elsewhere
		if old, err = sp.repo.commit(ctx, ref); err != nil {
			return "", err
		}
		out.Beside, stays = sp.rec.Branch+elsewhere, "the run has left its branch: what it did then is on "+sp.rec.Branch+elsewhere
	}
	commit, err := sp.repo.commitTree(ctx, now.id, "work of run "+string(sp.rec.Run)+"\n\nCommitted by nestor when the run was over.", parent)
	if err != nil {
		return "", err
	}
	if commit != old {
		if err := sp.repo.move(ctx, ref, commit, old, "nestor: end of run "+string(sp.rec.Run)); err != nil {
			return "", err
		}
	}
	if !w.beside && w.on && commit != parent {
		admin := sp.repo.admin(sp.rec.Run)
		if err := copyIndex(sp.shadow.index, filepath.Join(admin, "index")); err != nil {
			return "", err
		}
	}
	if out.Commit = commit; w.beside {
		out.Commit = w.tip
	}
	if stays == "" {
		stays = staysFor(now, sp.rec.Top)
	}
	return stays, nil
}

// staysFor says why a folder must not be removed though all of git's is safe.
func staysFor(now captured, top string) string {
	if info, err := os.Lstat(filepath.Join(top, ".git")); err == nil && info.IsDir() {
		return "the run made a repository of its own in " + top
	}
	if len(now.nested) > 0 {
		return fmt.Sprintf("there is another repository in it: %q", now.nested[0])
	}
	if len(now.left) > 0 {
		return fmt.Sprintf("%q cannot be committed", now.left[0])
	}
	return ""
}

// whereabouts are where a run's worktree is on, compared with its branch.
type whereabouts struct {
	tip    string // of its branch; empty if that is gone
	parent string // what new work builds on
	on     bool   // HEAD is the branch
	beside bool   // the parent does not contain the tip, so that work on it cannot be put on the branch
	behind bool   // all of the parent is in the tip
}

func (r *repository) where(ctx context.Context, rec record) (whereabouts, error) {
	var w whereabouts
	var err error
	if w.tip, err = r.commit(ctx, "refs/heads/"+rec.Branch); err != nil {
		return w, err
	}
	head, err := r.commit(ctx, "worktrees/"+string(rec.Run)+"/HEAD")
	if err != nil {
		return w, err
	}
	name, err := os.ReadFile(filepath.Join(r.admin(rec.Run), "HEAD"))
	w.on = err == nil && strings.TrimSpace(string(name)) == "ref: refs/heads/"+rec.Branch
	switch {
	case w.tip == "" && head == "":
		w.parent = rec.Base // the branch was removed while it was checked out
	case w.tip == "":
		w.parent = head
	case w.on || head == "" || head == w.tip:
		w.parent = w.tip
	default:
		ahead, err := r.isAncestor(ctx, w.tip, head)
		if err != nil {
			return w, err
		}
		if w.parent = head; ahead {
			return w, nil
		}
		w.beside = true
		if w.behind, err = r.isAncestor(ctx, head, w.tip); err != nil {
			return w, err
		}
	}
	return w, nil
}

// commitTree makes a commit of a tree, or returns the only parent if that has the
// same one.
func (r *repository) commitTree(ctx context.Context, tree, message string, parents ...string) (string, error) {
	args := []string{"commit-tree", "-m", message}
	for _, parent := range parents {
		args = append(args, "-p", parent)
	}
	if len(parents) == 1 {
		same, err := r.treeOf(ctx, parents[0])
		if err != nil || same == tree {
			return parents[0], err
		}
	}
	return r.plumb(ctx, append(args, tree)...)
}
