package tools

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// checkName fails unless f, which was opened as name in dir, still has that name.
//
// It makes the count of hard links mean something. A file outside that is linked
// in, opened, and unlinked before it is looked at has one link, like any other.
// But a name that is taken away is gone for good, as far as the open file is
// concerned: if it is there now, it was there when the links were counted, and
// was the one that was counted.
//
// Linux counts a name down before it takes it away, and has the folder locked
// meanwhile. Who reads the folder waits for that.
func checkName(dir *os.Root, name string, f *os.File) error {
	d, err := dir.Open(".")
	if err != nil {
		return fmt.Errorf("the folder must be readable, or nobody knows whether the file is linked in from elsewhere: %w", err)
	}
	defer d.Close()
	if _, err := d.Readdirnames(1); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	folder, err := pathOf(d)
	if err != nil {
		return err
	}
	path, err := pathOf(f)
	if err == nil && path != filepath.Join(folder, name) { // one that is gone ends in " (deleted)"
		err = errChanged
	}
	return err
}

// pathOf returns the path that an open file has now.
func pathOf(f *os.File) (path string, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return "", err
	}
	if cerr := conn.Control(func(fd uintptr) { path, err = os.Readlink(fmt.Sprint("/proc/self/fd/", fd)) }); cerr != nil {
		return "", cerr
	}
	return path, err
}
