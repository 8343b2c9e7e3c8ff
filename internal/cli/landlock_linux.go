package cli

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// landlockVersion asks the kernel which version of Landlock it has. Nothing is
// confined by asking.
func landlockVersion() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("asking the kernel: %w", errno)
	}
	return int(version), nil
}
