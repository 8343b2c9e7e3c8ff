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
	id, err := os.ReadFile(filepath.Join(home, "id"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	want, err := os.ReadFile(known)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return len(id) == 0 || string(id) != string(want), nil
}

// acquaint gives a project's folder an id, unless it has one, and takes note of it.
func acquaint(home, known string) error {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	name := filepath.Join(home, "id")
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.WriteString(rand.Text() + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	id, err := os.ReadFile(name)
	if was, readErr := os.ReadFile(known); err == nil && readErr == nil && string(was) == string(id) {
		return nil
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(known), 0o700)
	}
	if err == nil {
		err = writeFile(known, strings.TrimSpace(string(id)), 0o600)
	}
	if err != nil {
		return fmt.Errorf("taking note of the project: %w (where that is not possible, set %s=1)", err, trustVariable)
	}
	return nil
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
