package history

import (
	"bytes"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
)

// What is kept is there again, the first of two under one name, and in a backup
// too.
func TestBlobsAreKept(t *testing.T) {
	dir := t.TempDir()
	h := mustOpen(t, filepath.Join(dir, "history.db"))
	large := bytes.Repeat([]byte("large"), 1<<20)
	for _, data := range [][]byte{large, []byte("another")} {
		if err := h.KeepBlob(soon(t), "root", "root/large", data); err != nil {
			t.Fatal(err)
		}
	}
	to := filepath.Join(dir, "backup.db")
	if err := h.Backup(soon(t), to); err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]*History{"history": h, "backup": mustOpen(t, to)} {
		if got, err := h.Blob(soon(t), "root/large"); err != nil || !bytes.Equal(got, large) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if _, err := h.Blob(soon(t), "root/other"); !errors.Is(err, ErrNoBlob) {
			t.Errorf("%s: one that was not kept: %v", name, err)
		}
	}
}

// A file of the version that kept no blobs is brought to this one.
func TestFileWithoutBlobsIsMigrated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.db")
	h, err := Open(soon(t), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	err = h.change(soon(t), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(soon(t), "DROP TABLE blobs")
		return errors.Join(err, setMeta(soon(t), tx, metaSchema, "1"))
	})
	if err := errors.Join(err, h.Close()); err != nil {
		t.Fatal(err)
	}
	h = mustOpen(t, path)
	if err := h.KeepBlob(soon(t), "root", "root/x", []byte("x")); err != nil {
		t.Error(err)
	}
}
