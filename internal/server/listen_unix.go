//go:build unix

package server

import (
	"io/fs"
	"syscall"
)

// private gives a socket its mode before it has a name, so that nobody else
// can connect in between. Where the system does not allow that, the folder and
// the mode that Listen sets have to do.
func private(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { syscall.Fchmod(int(fd), 0o600) })
}

func writableByOthers(mode fs.FileMode) bool { return mode&0o022 != 0 }
