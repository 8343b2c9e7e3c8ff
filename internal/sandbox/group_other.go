//go:build !linux

package sandbox

import (
	"errors"
	"runtime"
)

// OpenGroups fails: there are no control groups here.
func OpenGroups() (dir string, err error) { return "", CheckGroups() }

// CheckGroups tells why [OpenGroups] fails.
func CheckGroups() error { return errors.New(runtime.GOOS + " has no control groups") }
