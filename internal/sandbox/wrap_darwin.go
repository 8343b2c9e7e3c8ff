package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const sandboxExec = "/usr/bin/sandbox-exec"

// System returns what programs need to run.
func System() []string {
	return []string{
		"/usr", "/bin", "/sbin", "/System", "/Library", "/opt/homebrew", "/private/etc", "/private/var/db/timezone",
		"/Applications/Xcode.app",
	}
}

// wrap leaves it to the system's sandbox-exec to confine a command. Nobody owns
// its process tree here, and limits are refused.
func wrap(p Profile) (func([]string) []string, error) {
	if p.Limits != (Limits{}) {
		return nil, errors.New("limits cannot be enforced on macOS; leave them out")
	}
	if p.Network == Hosts {
		return nil, errNoOutlet()
	}
	if !p.confined() {
		return func(argv []string) []string { return argv }, nil
	}
	if _, err := os.Stat(sandboxExec); err != nil {
		return nil, fmt.Errorf("level %s cannot be enforced here: %w; use level %s", p.Level, err, Off)
	}
	for _, list := range []*[]string{&p.Read, &p.Write, &p.Hide} {
		var real []string
		for _, path := range *list {
			if r, err := filepath.EvalSymlinks(path); err == nil {
				path = r
			}
			real = append(real, path)
		}
		*list = real
	}
	prefix := []string{sandboxExec, "-p", seatbelt(p, System())}
	return func(argv []string) []string { return append(prefix[:len(prefix):len(prefix)], argv...) }, nil
}

func check() Report {
	return Report{Why: "macOS has no Landlock; its sandbox-exec confines commands, and has not been tested with this program"}
}
