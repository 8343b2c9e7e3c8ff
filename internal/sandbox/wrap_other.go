//go:build !linux && !darwin

package sandbox

import (
	"errors"
	"runtime"
)

// System returns nothing: nothing is confined here.
func System() []string { return nil }

// wrap refuses whatever cannot be done here.
func wrap(p Profile) (func([]string) []string, error) {
	if p.Limits != (Limits{}) {
		return nil, errors.New("limits cannot be enforced on " + runtime.GOOS + "; leave them out")
	}
	if err := check().Refuses(p.Level, p.Network); err != nil {
		return nil, err
	}
	return func(argv []string) []string { return argv }, nil
}

func check() Report { return Report{Why: runtime.GOOS + " has nothing that could confine a command"} }
