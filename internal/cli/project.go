package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// projectDir returns the absolute path of the project that the folder from
// belongs to: of from and the folders above it the nearest that holds a folder
// .nestor, else the nearest that holds .git, else from itself. An empty from is
// the working directory.
func projectDir(from string) (string, error) {
	dir, err := filepath.Abs(from)
	if err != nil {
		return "", fmt.Errorf("finding the project of %q: %w", from, err)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("finding the project: there is no folder %s", dir)
	case err != nil:
		return "", fmt.Errorf("finding the project: %w", err)
	case !info.IsDir():
		return "", fmt.Errorf("finding the project: %s is no folder", dir)
	}
	for _, has := range []func(string) bool{hasNestor, hasGit} {
		for at := dir; ; at = filepath.Dir(at) {
			if has(at) {
				return at, nil
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	return dir, nil
}

// hasNestor does not see the folder of somebody else, who would get what is
// submitted.
func hasNestor(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, ".nestor"))
	return err == nil && info.IsDir() && mine(info)
}

// hasGit also knows worktrees, where .git is a file.
func hasGit(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, ".git"))
	return err == nil
}
