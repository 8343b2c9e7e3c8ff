package cli

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// claim makes sure that what the project's folder .nestor holds was recorded here,
// by this user, before this process becomes its owner: there may be runs in it
// that go on. Who clones a project, or unpacks it, has not submitted them.
//
// The folder has an id, and the user's own folder knows it, by the path.
func claim(project string, env []string) error {
	files, err := configFiles(project, variables(env))
	if err != nil {
		return err
	}
	known := knownFile(files, project)
	if known == "" || variables(env)[trustVariable] == "1" {
		return nil // there is no place to know it from, or nobody to ask
	}
	home := filepath.Join(project, ".nestor")
	strange, err := foreign(home, known)
	switch {
	case err != nil:
		return err
	case !strange:
		return acquaint(home, known)
	}
	return fmt.Errorf("%s holds runs that were not submitted here, and would go on: remove its folder broker, or run 'nestor config trust' to accept them (where nobody can, set %s=1)",
		home, trustVariable)
}

// foreign tells whether a project's folder holds something that the user's own
// folder does not know.
func foreign(home, known string) (bool, error) {
	if _, err := os.Stat(filepath.Join(home, "broker")); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	id, err := readID(filepath.Join(home, "id"))
	if err != nil {
		return false, err
	}
	want, err := readID(known)
	return id == "" || id != want, err
}

// readID returns the id in a file, "" if there is none.
func readID(name string) (string, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// acquaint gives a project's folder an id, unless it has one, and takes note of it.
func acquaint(home, known string) error {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return fmt.Errorf("making the project's folder: %w; change to a folder where you can make one", err)
	}
	for { // until it is the same in both: another one may have taken note of one that was replaced
		id, err := identify(filepath.Join(home, "id"))
		if was, readErr := readID(known); err == nil && readErr == nil && was == id {
			return nil
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(known), 0o700)
		}
		if err == nil {
			err = writeFile(known, id, 0o600)
		}
		if err != nil {
			return fmt.Errorf("taking note of the project: %w (where that is not possible, set %s=1)", err, trustVariable)
		}
	}
}

// identify returns the id in a file, which it makes if there is none, whole or not at all:
// who was killed in between would have left one that is nobody's. Of two who do so at once
// one makes it.
func identify(name string) (string, error) {
	id, err := readID(name)
	if id != "" || err != nil {
		return id, err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".id-")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(rand.Text() + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", err
	}
	if os.Link(f.Name(), name) != nil { // there is one, or here are no links
		if id, err := readID(name); id != "" || err != nil {
			return id, err
		}
		if err := os.Rename(f.Name(), name); err != nil {
			return "", err
		}
	}
	return readID(name)
}

// knownFile returns where the user's folder keeps the id of a project, empty if
// there is none.
func knownFile(files []configFile, project string) string {
	trust := trustFile(files)
	if trust == "" {
		return ""
	}
	if real, err := filepath.EvalSymlinks(project); err == nil {
		project = real
	}
	sum := sha256.Sum256([]byte(project))
	return filepath.Join(filepath.Dir(trust), "projects", hex.EncodeToString(sum[:16]))
}
