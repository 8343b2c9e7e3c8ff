//go:build unix

package cli

import (
	"io/fs"
	"os"
	"syscall"
)

// mine tells whether a file belongs to the user who runs this.
func mine(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(stat.Uid) == os.Getuid()
}
