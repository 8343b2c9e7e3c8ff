package history

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// What can be wrong with the file. The text of the error that wraps one says
// what to do.
var (
	ErrDamaged  = errors.New("the file is damaged")
	ErrNewer    = errors.New("a newer nestor wrote the file")
	ErrReadOnly = errors.New("the file or its folder cannot be written")
	ErrFull     = errors.New("the disk is full")
)

// explain names the file, what is wrong with it and the way out.
func (h *History) explain(err error) error {
	damaged := func(err error) error {
		return fmt.Errorf("history %s: %w: put a backup back, or accept the damage to move it aside and begin anew: what is live comes back from the log, what was archived does not", h.path, err)
	}
	full := func(err error) error {
		return fmt.Errorf("history %s: %w: make room and start again: nothing is lost, the log keeps what is not here yet", h.path, err)
	}
	if failure, ok := errors.AsType[*sqlite.Error](err); ok {
		switch failure.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return damaged(fmt.Errorf("%w: %w", ErrDamaged, err))
		case sqlite3.SQLITE_FULL:
			return full(fmt.Errorf("%w: %w", ErrFull, err))
		case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
			return fmt.Errorf("history %s: %w: %w: make both writable for this user", h.path, ErrReadOnly, err)
		case sqlite3.SQLITE_BUSY:
			return fmt.Errorf("history %s: %w: another process has it open and writes for long: end it", h.path, err)
		case sqlite3.SQLITE_IOERR:
			return fmt.Errorf("history %s: %w: the disk gave an error or is full: look at it, then start again: nothing is lost, the log keeps what is not here yet", h.path, err)
		}
	}
	switch {
	case errors.Is(err, ErrDamaged):
		return damaged(err)
	case isFull(err):
		return full(fmt.Errorf("%w: %w", ErrFull, err))
	case isReadOnly(err):
		return fmt.Errorf("history %s: %w: %w: make both writable for this user", h.path, ErrReadOnly, err)
	}
	return fmt.Errorf("history %s: %w", h.path, err)
}

// isReadOnly tells whether the operating system refused a write.
func isReadOnly(err error) bool {
	return errors.Is(err, fs.ErrPermission) || isReadOnlySystem(err)
}

// moveAside renames a damaged file, and its journal, and returns where it is.
func moveAside(path string, now time.Time) (string, error) {
	aside := path + ".damaged-" + now.UTC().Format("20060102T150405.000000000")
	for _, suffix := range []string{"-wal", "-shm", ""} { // the file last: it is what is looked for
		if err := os.Rename(path+suffix, aside+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return aside, nil
}
