package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
)

// System returns what programs need to run, and everybody on the machine may
// read: programs, libraries, settings. It is part of every profile that
// confines. In /etc only files that others than their owner may read are
// included: root could read the rest.
func System() []string {
	var list []string
	for _, path := range []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/run/current-system",
		"/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage",
	} {
		if _, err := os.Stat(path); err == nil {
			list = append(list, path)
		}
	}
	open, _ := public("/etc", nil)
	list = append(list, open...)
	// Who resolves names keeps its settings elsewhere.
	if target, err := filepath.EvalSymlinks("/etc/resolv.conf"); err == nil && filepath.Dir(target) != "/etc" {
		list = append(list, target)
	}
	return list
}

// public appends to list what is in the folder and everybody may read: the
// folder itself if that is all of it.
func public(dir string, list []string) (_ []string, whole bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return list, false
	}
	whole = true
	before := len(list)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		switch {
		case err != nil:
			whole = false
		case e.Type() == fs.ModeSymlink: // its target is what counts
		case e.IsDir():
			if info.Mode()&0o005 != 0o005 {
				whole = false
				continue
			}
			below := false
			if list, below = public(path, list); !below {
				whole = false
			}
		case !e.Type().IsRegular() || info.Mode()&0o004 == 0:
			whole = false
		default:
			list = append(list, path)
		}
	}
	if whole {
		list = append(list[:before], dir)
	}
	return list, whole
}

// devices are what programs expect in /dev.
var devices = map[string]use{
	"/dev/null": useDevice, "/dev/zero": useDevice, "/dev/full": useDevice,
	"/dev/random": useDevice, "/dev/urandom": useDevice, "/dev/tty": useTerm,
}
