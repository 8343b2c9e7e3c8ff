//go:build unix

package history

import (
	"errors"
	"os"
	"syscall"
)

func isFull(err error) bool           { return errors.Is(err, syscall.ENOSPC) }
func isReadOnlySystem(err error) bool { return errors.Is(err, syscall.EROFS) }

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
