package workspace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// merge brings the run's branch into the one that it came from, or says in out why
// it does not. One run does so at a time.
func (sp *Space) merge(ctx context.Context, out *Outcome) error {
	lock, err := waitLock(ctx, filepath.Join(filepath.Dir(sp.home), "merge.lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	// A git that outlives this process keeps others from merging.
	repo, files := *sp.repo, *sp.shadow
	repo.git = repo.git.holding(lock)
	files.git = repo.git
	if err := sp.finish(ctx, &repo, files); err != nil {
		return fmt.Errorf("finishing a merge that was interrupted: %w", err)
	}
	into := strings.TrimPrefix(sp.rec.BaseRef, "refs/heads/")
	if into == "" {
		out.Why = fmt.Sprintf("it began at commit %.12s, which is no branch: merge %s where it belongs", sp.rec.Base, sp.rec.Branch)
		return nil
	}
	const tries = 3 // somebody else may commit meanwhile
	for range tries {
		m := &merging{Space: sp, repo: &repo, shadow: &files, tip: out.Commit, into: into}
		why, err := m.do(ctx)
		if errors.Is(err, errMoved) {
			continue
		}
		if err != nil {
			return err
		}
		if out.Why, out.Conflicts = why, m.conflicts; why == "" {
			out.End, out.Into, out.Merged = Merge, into, m.result
		}
		return nil
	}
	out.Why = fmt.Sprintf("branch %s changed again and again meanwhile: merge it later", into)
	return nil
}

// errMoved says that the base is not where it was.
var errMoved = errors.New("the branch has moved meanwhile")

// merging is one try to merge.
type merging struct {
	*Space
	repo      *repository
	shadow    *shadow
	into      string // the branch
	tip       string // what is merged
	base      string // what it is merged into
	result    string // the commit that becomes of both
	conflicts []string
}

// do merges, or says why not.
func (m *merging) do(ctx context.Context) (why string, err error) {
	if m.base, err = m.repo.commit(ctx, m.rec.BaseRef); err != nil {
		return "", err
	}
	if m.base == "" {
		return fmt.Sprintf("branch %s is gone: merge %s where it belongs", m.into, m.rec.Branch), nil
	}
	done, err := m.repo.isAncestor(ctx, m.tip, m.base)
	if done || err != nil {
		m.result = m.base
		return "", err
	}
	if why, err := m.combine(ctx); why != "" || err != nil {
		return why, err
	}
	if m.repo.isRebased(m.rec.BaseRef) {
		return fmt.Sprintf("branch %s is being rebased: merge it when that is done", m.into), nil
	}
	var checkouts []string
	err = alone(ctx, m.home, func() (err error) {
		checkouts, err = m.repo.checkouts(ctx, m.rec.BaseRef)
		return err
	})
	if err != nil {
		return "", err
	}
	switch {
	case len(checkouts) == 0:
		return "", m.move(ctx)
	case len(checkouts) == 1 && sameFolder(checkouts[0], m.repo.top):
		return m.intoCheckout(ctx)
	}
	return fmt.Sprintf("branch %s is checked out in %s: run git merge %s there", m.into, checkouts[0], m.rec.Branch), nil
}

// combine makes the result, without touching a file.
func (m *merging) combine(ctx context.Context) (why string, err error) {
	forward, err := m.repo.isAncestor(ctx, m.base, m.tip)
	if forward || err != nil {
		m.result = m.tip
		return "", err
	}
	text, err := m.shadow.run(ctx, nil, "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", "--allow-unrelated-histories", m.base, m.tip)
	refused, ok := errors.AsType[*gitError](err)
	tree, names, _ := strings.Cut(string(text), "\x00")
	switch {
	case ok && refused.code == 1:
		for name := range strings.SplitSeq(names, "\x00") {
			if name != "" && !slices.Contains(m.conflicts, name) {
				m.conflicts = append(m.conflicts, name)
			}
		}
		return fmt.Sprintf("%s and %s changed the same: run git merge %s and decide", m.into, m.rec.Branch, m.rec.Branch), nil
	case ok && refused.code == 129:
		return fmt.Sprintf("git is older than 2.38, which cannot merge beside a checkout: run git merge %s", m.rec.Branch), nil
	case err != nil:
		return "", err
	}
	m.result, err = m.repo.commitTree(ctx, tree, "merge the work of run "+string(m.rec.Run)+"\n\nBranch "+m.rec.Branch+".", m.base, m.tip)
	return "", err
}

// move makes the result the tip of the base branch.
func (m *merging) move(ctx context.Context) error {
	err := m.repo.move(ctx, m.rec.BaseRef, m.result, m.base, "nestor: merge "+m.rec.Branch)
	if err == nil {
		return nil
	}
	if now, e := m.repo.commit(ctx, m.rec.BaseRef); e == nil && now != m.base {
		return errMoved
	}
	return err
}

// intoCheckout merges into the branch that is checked out in the project. Its files
// are changed first: were the branch, and the process killed, the checkout would
// seem to undo the merge.
func (m *merging) intoCheckout(ctx context.Context) (why string, err error) {
	files := *m.shadow
	files.tree, files.index = m.repo.top, filepath.Join(m.repo.private, "index")
	if why, err := m.look(ctx, &files); why != "" || err != nil {
		return why, err
	}
	p := pending{Top: m.repo.top, Ref: m.rec.BaseRef, From: m.base, To: m.result}
	text, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	if err := replaceFile(m.pendingFile(), text); err != nil {
		return "", err
	}
	if _, err := files.run(ctx, nil, "read-tree", "-m", "-u", m.base, m.result); err != nil {
		if refused, ok := errors.AsType[*gitError](err); ok {
			why, err = fmt.Sprintf("git would not change %s: %s", m.repo.top, strings.TrimSpace(refused.stderr)), nil
			return why, os.Remove(m.pendingFile())
		}
		return "", err // what is half done is finished by the next
	}
	if err := m.move(ctx); err != nil {
		// Back to what was there: somebody else has moved the branch.
		if _, back := files.run(context.WithoutCancel(ctx), nil, "read-tree", "-m", "-u", m.result, m.base); back != nil {
			return "", fmt.Errorf("putting %s back: %w", m.repo.top, back)
		}
		return "", errors.Join(err, os.Remove(m.pendingFile()))
	}
	return "", os.Remove(m.pendingFile())
}

// pending is a merge into a checkout that is under way: .nestor/spaces/merge.json.
type pending struct {
	Top  string `json:"top"`
	Ref  string `json:"ref"`
	From string `json:"from"`
	To   string `json:"to"`
}

func (sp *Space) pendingFile() string { return filepath.Join(filepath.Dir(sp.home), "merge.json") }

// finish does what is left of a merge whose process was killed, of whatever run: if
// the checkout is as the merge makes it, the branch follows. Anything else is for
// the user, who is told that the checkout is not clean.
func (sp *Space) finish(ctx context.Context, repo *repository, files shadow) error {
	text, err := os.ReadFile(sp.pendingFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var p pending
	if json.Unmarshal(text, &p) == nil && sameFolder(p.Top, repo.top) && p.Ref == repo.branch {
		files.tree, files.index = repo.top, filepath.Join(repo.private, "index")
		if err := files.prepare(); err != nil {
			return err
		}
		look, err := files.with(files.index)
		if err != nil {
			return err
		}
		defer os.Remove(look.index)
		staged, err := look.run(ctx, nil, "write-tree")
		if err != nil && ctx.Err() != nil {
			return err
		}
		to, treeErr := repo.treeOf(ctx, p.To)
		if err == nil && treeErr == nil && strings.TrimSpace(string(staged)) == to {
			if now, err := repo.commit(ctx, p.Ref); err != nil {
				return err
			} else if now == p.From {
				if err := repo.move(ctx, p.Ref, p.To, p.From, "nestor: finish a merge"); err != nil {
					return err
				}
			}
		}
	}
	return os.Remove(sp.pendingFile())
}

// look tells whether the checkout may be changed: all in it is committed, and
// nothing that git does not track is in the way.
func (m *merging) look(ctx context.Context, files *shadow) (why string, err error) {
	if err := files.prepare(); err != nil {
		return "", err
	}
	dirty := func(what string) (string, error) {
		return fmt.Sprintf("the checkout %s of %s %s: commit or stash that, then run git merge %s", m.repo.top, m.into, what, m.rec.Branch), nil
	}
	if _, err := os.Lstat(files.index + ".lock"); err == nil {
		return dirty("is being changed by another git")
	}
	// Git would refresh the index, and that is not ours to do yet.
	look, err := files.with(files.index)
	if err != nil {
		return "", err
	}
	defer os.Remove(look.index)
	staged, err := look.run(ctx, nil, "write-tree")
	if err != nil {
		return dirty("has a merge that is not finished")
	}
	before, err := m.repo.treeOf(ctx, m.base)
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(string(staged)) != before {
		return dirty("has staged changes")
	}
	changed, err := look.run(ctx, nil, "ls-files", "-z", "--modified", "--deleted")
	if err != nil {
		return "", err
	}
	if name, _, _ := strings.Cut(string(changed), "\x00"); name != "" {
		return dirty(fmt.Sprintf("has changes, such as of %q", name))
	}
	marks, err := look.run(ctx, nil, "ls-files", "-z", "-v")
	if err != nil {
		return "", err
	}
	for entry := range bytes.SplitSeq(marks, []byte{0}) {
		if len(entry) > 0 && entry[0] != 'H' {
			return dirty(fmt.Sprintf("has files that git is told not to look at, such as %q", entry[2:]))
		}
	}
	return m.inTheWay(ctx, files)
}

// inTheWay says what of the files that git does not track would be overwritten,
// and what git alone cannot write.
func (m *merging) inTheWay(ctx context.Context, files *shadow) (why string, err error) {
	list, err := files.changes(ctx, m.base, m.result)
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(m.repo.top)
	if err != nil {
		return "", err
	}
	defer root.Close()
	goes, names := map[string]bool{}, []byte{}
	for _, ch := range list {
		goes[ch.Path] = ch.Action == Removed
		names = append(append(names, ch.Path...), 0)
	}
	for _, ch := range list {
		if ch.Action != Written {
			continue
		}
		if name := obstacle(root, ch.Path, goes); name != "" && !slices.Contains(m.conflicts, name) {
			m.conflicts = append(m.conflicts, name)
		}
	}
	if len(m.conflicts) > 0 {
		return fmt.Sprintf("it would overwrite files in %s that git does not track: move them away, then run git merge %s", m.repo.top, m.rec.Branch), nil
	}
	// Attributes are those of the repository: this command reads them, and runs nothing.
	out, err := m.repo.run(ctx, call{dir: m.repo.top, repo: m.repo.private, tree: m.repo.top, stdin: bytes.NewReader(names), args: []string{"check-attr", "--stdin", "-z", "filter"}})
	if err != nil {
		return "", err
	}
	parts := strings.Split(string(out), "\x00")
	for i := 0; i+2 < len(parts); i += 3 {
		if value := parts[i+2]; value != "unspecified" && value != "unset" {
			return fmt.Sprintf("it changes %q, which the filter %.40q has to write: run git merge %s", parts[i], value, m.rec.Branch), nil
		}
	}
	return "", nil
}

// obstacle returns what is in the place of a new file, or of a folder above it, and
// does not go.
func obstacle(root *os.Root, file string, goes map[string]bool) string {
	for i := range len(file) + 1 {
		if i < len(file) && file[i] != '/' {
			continue
		}
		name := file[:i]
		info, err := root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && goes[name]:
			return ""
		case err != nil, i == len(file), !info.IsDir():
			return name
		}
	}
	return ""
}

// checkouts returns the folders where a branch is checked out.
func (r *repository) checkouts(ctx context.Context, ref string) ([]string, error) {
	text, err := r.plumb(ctx, "worktree", "list", "--porcelain", "-z")
	if err != nil {
		return nil, err
	}
	var dirs []string
	dir := ""
	for line := range strings.SplitSeq(text, "\x00") {
		if name, ok := strings.CutPrefix(line, "worktree "); ok {
			dir = name
		}
		if line == "branch "+ref {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// isRebased tells whether a rebase or bisect is under way that will move a branch.
func (r *repository) isRebased(ref string) bool {
	dirs, _ := filepath.Glob(filepath.Join(escapeGlob(r.common), "worktrees", "*"))
	for _, dir := range append(dirs, r.common) {
		for _, name := range []string{"rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			got := strings.TrimSpace(string(text))
			if err == nil && (got == ref || got == strings.TrimPrefix(ref, "refs/heads/")) {
				return true
			}
		}
	}
	return false
}

func escapeGlob(name string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(name)
}

func sameFolder(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
