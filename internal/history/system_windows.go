package history

import (
	"errors"
	"syscall"
)

const (
	errorWriteProtect syscall.Errno = 19
	errorDiskFull     syscall.Errno = 112
)

func isFull(err error) bool           { return errors.Is(err, errorDiskFull) }
func isReadOnlySystem(err error) bool { return errors.Is(err, errorWriteProtect) }

// syncDir does nothing: NTFS keeps names in its own journal.
func syncDir(string) error { return nil }
