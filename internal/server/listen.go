package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Listen opens a Unix socket that only its owner can connect to: the file has
// mode 0600, and its folder is made with 0700 if it is not there. A folder
// that others can write to is an error, since they could put another socket in
// its place. A socket file on which nobody accepts is replaced; one on which
// somebody does is an error.
//
// Two that find the same dead file at the same moment could replace each
// other's socket: whoever calls keeps them apart, with the lock on the
// project.
func Listen(path string) (net.Listener, error) {
	ln, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return ln, nil
}

// maxPath is how long the path of a socket can be.
const maxPath = len(syscall.RawSockaddrUnix{}.Path) - 1

func listen(path string) (net.Listener, error) {
	if path == "" {
		return nil, errors.New("the path of the socket is empty")
	}
	if len(path) > maxPath {
		return nil, fmt.Errorf("the path has %d bytes, and a socket's has %d at most; choose a shorter folder", len(path), maxPath)
	}
	if err := privateFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := removeDead(path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: private}
	ln, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

func privateFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); writableByOthers(mode) {
		return fmt.Errorf("others can write to the folder %s (mode %04o); choose one that only you can write to", dir, mode)
	}
	return nil
}

// removeDead removes the socket file of a server that is gone.
func removeDead(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("a file that is no socket is there; remove it, or choose another path")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return errors.New("somebody listens there already")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("asking whether somebody listens there: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
