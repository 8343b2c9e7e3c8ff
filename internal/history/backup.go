package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Backup writes a copy of the history, as it is at this moment, into a file that
// must not exist. Others go on reading and writing meanwhile. The file is there
// when it is whole and synced, or not at all. To put it back, end nestor and
// replace the history by it, without what lies beside that with -wal and -shm.
func (h *History) Backup(ctx context.Context, path string) error {
	if err := h.backup(ctx, path); err != nil {
		return fmt.Errorf("copying history %s to %s: %w", h.path, path, err)
	}
	return nil
}

func (h *History) backup(ctx context.Context, path string) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%w: choose another name, or remove it", fs.ErrExist)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".history-*") // of this user alone
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	part := filepath.Join(dir, "history.db")
	if err := h.vacuumInto(ctx, part); err != nil {
		return err
	}
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(0o600), f.Sync(), f.Close()); err != nil {
		return err
	}
	// A link does not overwrite, should another have made the file meanwhile.
	if err := os.Link(part, path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := os.Rename(part, path); err != nil { // a file system without links
			return err
		}
	}
	return syncDir(filepath.Dir(path))
}

// vacuumInto copies through a connection of its own: it takes long, and those
// that read may not write.
func (h *History) vacuumInto(ctx context.Context, path string) (err error) {
	db, err := connect(h.path, 1, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", path)
	return err
}
