package broker

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// LockedError says that another process, or another broker in this one, has
// the folder. It is [ErrLocked].
type LockedError struct {
	Dir string
	PID int // of the owner; zero if it is not known
}

func (e *LockedError) Error() string {
	owner := "another process"
	if e.PID != 0 {
		owner = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("opening %s: %s has it open: use that one, or end it first", e.Dir, owner)
}

func (e *LockedError) Unwrap() error { return ErrLocked }

// FolderLock is the right to use a folder. The operating system takes it back when
// the process ends, however it does.
type FolderLock struct{ file *os.File }

// Lock takes the right to use a folder, or fails with a [LockedError].
func Lock(dir string) (*FolderLock, error) {
	name := filepath.Join(dir, "lock")
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the folder: %w: see that it is writable", err)
	}
	taken, err := tryLock(file)
	switch {
	case err != nil:
		file.Close()
		return nil, fmt.Errorf("locking the folder: %s: %w: keep it on a local disk", name, err)
	case !taken:
		defer file.Close()
		// What its owner wrote, or is about to.
		text := make([]byte, 32)
		n, _ := file.ReadAt(text, 0)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text[:n])))
		return nil, &LockedError{Dir: dir, PID: pid}
	}
	// As long as any before: to cut the file first takes more than a millisecond.
	if _, err := fmt.Fprintf(io.NewOffsetWriter(file, 0), "%-20d\n", os.Getpid()); err != nil {
		file.Close()
		return nil, fmt.Errorf("locking the folder: %w", err)
	}
	return &FolderLock{file}, nil
}

// Release gives it back. The file stays: were it removed, two processes could hold
// the lock of two files of the same name.
func (l *FolderLock) Release() error { return l.file.Close() }
