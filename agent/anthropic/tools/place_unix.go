//go:build unix

package tools

import (
	"io/fs"
	"syscall"
)

// openFlags keep a pipe that was put in place of a file from being waited for.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOCTTY

// hardLinks returns how many names the file has.
func hardLinks(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink)
	}
	return 1
}
