package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/dfaf701a/nestor"
)

const (
	maxSlug  = 40       // characters
	maxState = 64 << 10 // bytes of a STATE.md that are read
)

// slug makes a part of a branch's name of any text: letters, digits and single
// dashes in between, at most 40. It may be empty.
func slug(text string) string {
	var b strings.Builder
	dash := false
	for _, r := range text {
		if b.Len() >= maxSlug {
			break
		}
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			if dash && b.Len() > 0 && b.Len() < maxSlug-1 {
				b.WriteByte('-')
			}
			b.WriteRune(r)
			dash = false
			continue
		}
		dash = true
	}
	return b.String()
}

// branchName is the branch of a run's worktree.
func branchName(run nestor.ID, slug string) string {
	name := "nestor/" + string(run)
	if slug != "" {
		name += "-" + slug
	}
	return name
}

// checkSwarm tells whether a name is one element of a path.
func checkSwarm(name string) error {
	if name == "" || len(name) > 100 || strings.HasPrefix(name, ".") || strings.ContainsAny(name, `/\:`) || !filepath.IsLocal(name) || holdsControl(name) {
		return fmt.Errorf("swarm %.100q: want the name of a folder in swarms/", name)
	}
	return nil
}

func holdsControl(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// swarmDir returns the workspace of a swarm, which is made on first use. Linked
// tells that it is a link to another place of the project, or to all of it.
func swarmDir(project, swarm string) (dir string, linked bool, err error) {
	if err := checkSwarm(swarm); err != nil {
		return "", false, err
	}
	root, err := os.OpenRoot(project)
	if err != nil {
		return "", false, err
	}
	defer root.Close()
	home := path.Join("swarms", swarm)
	if info, err := root.Stat(home); errors.Is(err, fs.ErrNotExist) {
		return "", false, fmt.Errorf("there is no swarm %s: make the folder %s with its agents in it", swarm, home)
	} else if err != nil {
		return "", false, fmt.Errorf("swarm %s: %w", swarm, err)
	} else if !info.IsDir() {
		return "", false, fmt.Errorf("swarm %s: %s is no folder", swarm, home)
	}
	name := path.Join(home, "workspace")
	if err := root.Mkdir(name, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", false, fmt.Errorf("making the workspace of swarm %s: %w", swarm, err)
	}
	info, err := root.Lstat(name)
	if err != nil {
		return "", false, err
	}
	linked = info.Mode()&fs.ModeSymlink != 0
	dir, err = filepath.EvalSymlinks(filepath.Join(project, filepath.FromSlash(name)))
	if err != nil {
		return "", false, fmt.Errorf("the workspace of swarm %s leads nowhere: %w", swarm, err)
	}
	if err := inProject(project, dir); err != nil {
		return "", false, fmt.Errorf("the workspace of swarm %s: %w", swarm, err)
	}
	return dir, linked, nil
}

// inProject tells whether a real path is a folder of a project where runs may
// work: its root, or below it, but not in what is private.
func inProject(project, dir string) error {
	rel, err := filepath.Rel(project, dir)
	if err != nil || !filepath.IsLocal(rel) {
		return fmt.Errorf("%s is outside of the project %s: let it lead inside", dir, project)
	}
	if holdsPrivate(filepath.ToSlash(rel)) {
		return fmt.Errorf("%s is not for runs to work in: let it lead elsewhere in the project", dir)
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", dir)
	}
	return err
}

// plainDir returns the folder that a request names.
func plainDir(project, dir string) (string, error) {
	if filepath.IsAbs(dir) {
		return filepath.Clean(dir), nil
	}
	if dir == "" {
		return project, nil
	}
	real, err := filepath.EvalSymlinks(filepath.Join(project, dir))
	if err != nil {
		return "", err
	}
	return real, inProject(project, real)
}

// placeIn returns where in the project a folder is.
func placeIn(project, dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(project, dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		err = inProject(project, real)
	}
	if err != nil {
		return "", err
	}
	return filepath.Rel(project, real)
}

// readState returns what is in STATE.md of a swarm, and its name. It is empty if
// there is none.
func readState(project, swarm string) (text, name string, err error) {
	if err := checkSwarm(swarm); err != nil {
		return "", "", err
	}
	root, err := os.OpenRoot(project)
	if err != nil {
		return "", "", err
	}
	defer root.Close()
	local := path.Join("swarms", swarm, "STATE.md")
	name = filepath.Join(project, filepath.FromSlash(local))
	if info, err := root.Lstat(local); errors.Is(err, fs.ErrNotExist) {
		return "", name, nil
	} else if err == nil && !info.Mode().IsRegular() { // what it led to could be written
		return "", "", fmt.Errorf("reading the state of swarm %s: %s is no file: put one there", swarm, local)
	}
	f, err := openFile(root, local)
	if err != nil {
		return "", "", fmt.Errorf("reading the state of swarm %s: %w", swarm, err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err != nil {
		return "", "", fmt.Errorf("reading the state of swarm %s: %w", swarm, err)
	}
	if len(content) <= maxState {
		return strings.ToValidUTF8(string(content), "\ufffd"), name, nil
	}
	text = strings.TrimRightFunc(string(content[:maxState]), func(r rune) bool { return r == utf8.RuneError })
	return fmt.Sprintf("%s\n\n(The rest of %s is left out: it is longer than %d bytes.)\n", strings.ToValidUTF8(text, "\ufffd"), local, maxState), name, nil
}

// MakeState makes the STATE.md of the run's swarm, empty, if it has none.
func (sp *Space) MakeState() error {
	project, err := sp.spaces.project()
	if err != nil || sp.StateFile == "" {
		return err
	}
	root, err := os.OpenRoot(project)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.Join("swarms", sp.rec.Swarm, "STATE.md"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("making the state of swarm %s: %w", sp.rec.Swarm, err)
	}
	return f.Close()
}
