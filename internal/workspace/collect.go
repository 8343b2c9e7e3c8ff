package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dfaf701a/nestor"
)

// Info is what there is of a run.
type Info struct {
	Run    nestor.ID
	Root   nestor.ID
	Kind   Kind
	Dir    string // where it worked
	Branch string // of a worktree
	Made   time.Time
	Used   time.Time // when it was opened or closed last
	Size   int64     // bytes on disk that are the run's alone
	InUse  bool      // somebody has it open
	Closed bool      // its run is over
	Work   string    // what would be lost with it, in words; empty if nothing would
	// Approved is who has approved the work; nil means nobody.
	Approved *Approval
}

// Policy says what is collected. The zero Policy collects nothing but what is left
// of spaces that were being made or removed.
type Policy struct {
	Age   time.Duration // what was used last so long ago; zero means that age is no reason
	Size  int64         // the oldest, until the rest has so many bytes; zero means that size is no reason
	Force bool          // also work that is not merged, or not committed: it is lost
}

// List returns what there is of runs that are not dropped, oldest first.
func (s *Spaces) List(ctx context.Context) ([]Info, error) {
	list, err := s.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing workspaces: %w", err)
	}
	return list, nil
}

func (s *Spaces) list(ctx context.Context) ([]Info, error) {
	project, err := s.project()
	if err != nil {
		return nil, err
	}
	runs, err := runsIn(project)
	if err != nil {
		return nil, err
	}
	var list []Info
	for _, run := range runs {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		home := homeOf(project, run)
		inUse := isHeld(filepath.Join(home, "lock"))
		rec, known, err := readRecord(home)
		if known && rec.State != opening && rec.State != dropping || !known && (err != nil || exists(worktreeOf(project, run))) {
			info := s.examine(ctx, project, run, rec, known, inUse)
			if err != nil {
				info.Work = "it cannot be told what it holds: " + err.Error()
			}
			list = append(list, info)
		}
	}
	slices.SortFunc(list, func(a, b Info) int { return cmp.Or(a.Used.Compare(b.Used), cmp.Compare(a.Run, b.Run)) })
	return list, nil
}

// runsIn returns the runs of which something is there.
func runsIn(project string) ([]nestor.ID, error) {
	var runs []nestor.ID
	for _, name := range []string{"spaces", "worktrees"} {
		entries, err := os.ReadDir(filepath.Join(project, ".nestor", name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if id, err := nestor.ParseID(e.Name()); err == nil && e.IsDir() {
				runs = append(runs, id)
			}
		}
	}
	slices.Sort(runs)
	return slices.Compact(runs), nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// examine says what there is of a run. What cannot be found out counts as work.
func (s *Spaces) examine(ctx context.Context, project string, run nestor.ID, rec record, known, inUse bool) Info {
	home, top := homeOf(project, run), worktreeOf(project, run)
	info := Info{
		Run: run, Root: rec.Root, Kind: rec.Kind, Dir: rec.Dir, Branch: rec.Branch, Made: rec.Made, Used: rec.Used,
		Approved: rec.Approved, InUse: inUse, Closed: rec.State == kept, Size: sizeOf(home) + sizeOf(top),
	}
	if !known {
		info.Kind, info.Dir, info.Made, info.Used = Worktree, top, run.Time(), run.Time()
		info.Work = "nothing is known of this folder"
		return info
	}
	if rec.Kind == Worktree {
		work, err := s.work(ctx, home, rec)
		if err != nil {
			work = "it cannot be told what it holds: " + err.Error()
		}
		info.Work = work
	}
	return info
}

// work says what would be lost with a worktree.
func (s *Spaces) work(ctx context.Context, home string, rec record) (string, error) {
	repo, err := s.git.open(ctx, rec.From)
	if err != nil {
		return "", err
	}
	w, err := repo.where(ctx, rec)
	if err != nil {
		return "", err
	}
	if exists(rec.Top) {
		if w.beside && !w.behind {
			return "commits that are not on its branch", nil
		}
		sh := s.shadowOf(repo, home, rec)
		look, err := sh.with(sh.index)
		if err != nil {
			return "", err
		}
		defer os.Remove(look.index)
		now, err := look.capture(ctx)
		if err != nil {
			return "", err
		}
		tree, err := repo.treeOf(ctx, w.parent)
		if err != nil {
			return "", err
		}
		if now.id != tree {
			return "changes that are not committed", nil
		}
		if why := staysFor(now, rec.Top); why != "" {
			return why, nil
		}
	}
	last := w.tip
	if w.beside || last == "" {
		last = cmp.Or(w.tip, w.parent)
	} else if w.parent != "" {
		last = w.parent
	}
	if last == rec.Base {
		return "", nil
	}
	if rec.BaseRef != "" {
		base, err := repo.commit(ctx, rec.BaseRef)
		if err != nil {
			return "", err
		}
		if base != "" {
			merged, err := repo.isAncestor(ctx, last, base)
			if merged || err != nil {
				return "", err
			}
		}
	}
	return "commits that are not merged", nil
}

// Collect removes what the policy says, and returns it: folders, branches, and what
// is known of them. What is in use stays, and so does what would be lost with it,
// unless the policy forces. Folders that are no worktrees stay; of these, only what
// is known of their runs goes. If it fails, what was removed before is returned.
func (s *Spaces) Collect(ctx context.Context, p Policy) ([]Info, error) {
	gone, err := s.collect(ctx, p)
	if err != nil {
		err = fmt.Errorf("collecting workspaces: %w", err)
	}
	return gone, err
}

func (s *Spaces) collect(ctx context.Context, p Policy) (gone []Info, err error) {
	project, err := s.project()
	if err != nil {
		return nil, err
	}
	if err := s.sweep(ctx, project); err != nil {
		return nil, err
	}
	list, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	var total int64
	for _, info := range list {
		total += info.Size
	}
	for _, info := range list {
		old := p.Age > 0 && time.Since(info.Used) >= p.Age
		large := p.Size > 0 && total > p.Size
		if info.InUse || !old && !large || info.Work != "" && !p.Force {
			continue
		}
		removed, err := s.remove(ctx, project, info.Run, p.Force)
		if err != nil {
			return gone, err
		}
		if removed {
			total -= info.Size
			gone = append(gone, info)
			s.log.Info("workspace collected", "run", info.Run, "kind", info.Kind, "branch", info.Branch, "lost", info.Work)
		}
	}
	return gone, nil
}

// sweep finishes what was interrupted.
func (s *Spaces) sweep(ctx context.Context, project string) error {
	runs, err := runsIn(project)
	if err != nil {
		return err
	}
	for _, run := range runs {
		home := homeOf(project, run)
		if !exists(home) {
			continue
		}
		lock, err := lockHome(home)
		if err != nil {
			return err
		}
		if lock == nil {
			continue
		}
		rec, known, err := readRecord(home)
		switch {
		case err != nil:
			err = nil // it is listed
		case !known && !exists(worktreeOf(project, run)):
			err = os.RemoveAll(home)
		case known && rec.State == dropping:
			err = s.discard(ctx, project, home, rec, lock)
		case known && rec.State == opening:
			err = s.abandon(ctx, project, home, rec, lock)
		}
		if err = errors.Join(err, lock.Close()); err != nil {
			return err
		}
	}
	return nil
}

// abandon removes a worktree that was never ready. Its branch stays if there is
// work on it.
func (s *Spaces) abandon(ctx context.Context, project, home string, rec record, lock *os.File) error {
	if rec.Kind == Worktree {
		repo, err := s.git.open(ctx, rec.From)
		if err != nil {
			return err
		}
		tip, err := repo.commit(ctx, "refs/heads/"+rec.Branch)
		if err != nil {
			return err
		}
		if tip != "" && tip != rec.Base {
			// It was there before: the worktree was being made anew.
			if err := repo.removeWorktree(ctx, home, worktreeOf(project, rec.Run), rec.Run); err != nil {
				return err
			}
			rec.State = open
			return rec.write(home)
		}
	}
	return s.discard(ctx, project, home, rec, lock)
}

// remove removes a run that nobody uses, unless it holds work after all.
func (s *Spaces) remove(ctx context.Context, project string, run nestor.ID, force bool) (bool, error) {
	home := homeOf(project, run)
	if err := makeHome(project, home); err != nil {
		return false, err
	}
	lock, err := lockHome(home)
	if lock == nil || err != nil {
		return false, err
	}
	defer lock.Close()
	rec, known, err := readRecord(home)
	if err != nil && !force {
		return false, nil
	}
	if !known {
		rec = record{Version: recordVersion, Run: run, Kind: Worktree, From: project, Top: worktreeOf(project, run), Branch: branchName(run, "")}
	}
	if info := s.examine(ctx, project, run, rec, known, false); info.Work != "" && !force {
		return false, nil
	}
	rec.State = dropping
	if err := rec.write(home); err != nil {
		return false, err
	}
	return true, s.discard(ctx, project, home, rec, lock)
}

// sizeOf returns the bytes below a folder, as far as they can be seen.
func sizeOf(dir string) int64 {
	var size int64
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
		return nil
	})
	return size
}
