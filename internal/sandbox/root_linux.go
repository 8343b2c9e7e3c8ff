package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// base is where a new root is put together, in a namespace where nobody looks
// for what was there.
const base = "/usr"

const scratch = "mode=1777,size=256m" // of /tmp and of /dev/shm

// makeRoot gives this process, which has to be in a mount namespace of its own, a
// root in which there are only the places, /proc of its own processes, and an
// empty /tmp and /dev/shm. It stays in its folder, which has to be there too.
func makeRoot(opened []openPlace) error {
	dir, err := unix.Getwd()
	if err != nil {
		return fmt.Errorf("finding the current folder: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("leaving the mounts of others: %w", err)
	}
	trees, err := clones(opened)
	if err != nil {
		return err
	}
	links := linksTo(opened)
	if err := unix.Mount("nestor", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
		return fmt.Errorf("mounting a root: %w", err)
	}
	if err := mountOwn(); err != nil {
		return err
	}
	for _, l := range links {
		if err := errors.Join(os.MkdirAll(filepath.Dir(base+l.path), 0o755), os.Symlink(l.target, base+l.path)); err != nil {
			return fmt.Errorf("linking %s: %w", l.path, err)
		}
	}
	for _, t := range trees {
		if err := t.attach(); err != nil {
			return fmt.Errorf("mounting %s: %w", t.path, err)
		}
	}
	for _, t := range trees {
		if t.hidden && t.dir { // in which nothing has to be made any more
			if err := readOnly(unix.AT_FDCWD, base+t.path, 0); err != nil {
				return fmt.Errorf("hiding %s: %w", t.path, err)
			}
		}
	}
	if err := enter(); err != nil {
		return err
	}
	if err := unix.Chdir(dir); err != nil {
		return fmt.Errorf("going to %s: %w; the folder where a command starts has to be among what it may read or write", dir, err)
	}
	return nil
}

// tree is what is mounted at a path.
type tree struct {
	path   string
	fd     int // what it is; -1 if hidden
	dir    bool
	hidden bool
}

// clones returns what is to be mounted, what is around others first. What is in a
// tree that can be used alike needs none of its own.
func clones(opened []openPlace) (trees []tree, err error) {
	uses := map[string]use{}
	for _, p := range opened {
		if p.fd < 0 {
			continue
		}
		around, found := use(0), false
		for dir := filepath.Dir(p.name); !found && dir != "/"; dir = filepath.Dir(dir) {
			around, found = uses[dir]
		}
		uses[p.name] = p.Use
		if p.Use == usePin {
			uses[p.name] = useWrite
		}
		switch {
		case p.Use == useHide && !found, found && around == p.Use && p.Use != usePin:
			continue
		case p.Use == useRead && found && around == useBeneath:
			continue
		}
		t := tree{path: p.name, fd: -1, dir: p.dir, hidden: p.Use == useHide}
		if !t.hidden {
			if t.fd, err = unix.OpenTree(p.fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE); err != nil {
				return nil, fmt.Errorf("taking %s: %w", t.path, err)
			}
			attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID}
			switch p.Use {
			case useRead, useBeneath:
				attr.Attr_set |= unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV
			case useWrite, usePin:
				attr.Attr_set |= unix.MOUNT_ATTR_NODEV
			case useDevice, useTerm:
				attr.Attr_set |= unix.MOUNT_ATTR_RDONLY // its mode and owner
			}
			if err := unix.MountSetattr(t.fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
				return nil, fmt.Errorf("taking rights from %s: %w", t.path, err)
			}
		}
		trees = append(trees, t)
	}
	return trees, nil
}

// attach mounts the tree in the new root.
func (t tree) attach() error {
	at := base + t.path
	if err := t.mountPoint(at); err != nil {
		return err
	}
	switch {
	case !t.hidden:
		defer unix.Close(t.fd)
		return unix.MoveMount(t.fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
	case t.dir:
		return unix.Mount("nestor", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m")
	}
	const empty = base + "/.empty"
	if err := os.WriteFile(empty, nil, 0o444); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, empty, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := readOnly(fd, "", unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	return unix.MoveMount(fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// mountPoint makes what is mounted on, unless it is there.
func (t tree) mountPoint(at string) error {
	if _, err := os.Lstat(at); err == nil {
		return nil
	}
	if t.dir {
		return os.MkdirAll(at, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.WriteFile(at, nil, 0o444)
}

// mountOwn mounts what belongs to the new root alone.
func mountOwn() error {
	const safe = unix.MS_NOSUID | unix.MS_NODEV
	for _, m := range []struct {
		kind, path, data string
		flags            uintptr
	}{
		{"proc", "/proc", "", safe | unix.MS_NOEXEC},
		{"tmpfs", "/tmp", scratch, safe},
		{"tmpfs", "/dev/shm", scratch, safe},
	} {
		if err := os.MkdirAll(base+m.path, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, base+m.path, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mounting %s: %w", m.path, err)
		}
	}
	for path, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, base+path); err != nil {
			return err
		}
	}
	// Where no terminals can be had, commands do without.
	if os.Mkdir(base+"/dev/pts", 0o755) == nil && unix.Mount("devpts", base+"/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620") == nil {
		return os.Symlink("pts/ptmx", base+"/dev/ptmx")
	}
	return nil
}

// enter makes base the root, and lets go of what was there.
func enter() error {
	if err := unix.Chdir(base); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the old root: %w", err)
	}
	return readOnly(unix.AT_FDCWD, "/", 0)
}

func readOnly(fd int, path string, flags uint) error {
	return unix.MountSetattr(fd, path, flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// link is a symbolic link.
type link struct{ path, target string }

// linksTo returns the links on the way to places by their names.
func linksTo(opened []openPlace) (list []link) {
	seen := map[string]bool{}
	for _, p := range opened {
		if p.Name == nil {
			continue
		}
		rest := strings.TrimPrefix(string(p.Name), "/")
		at := "/"
		for steps := 0; rest != "" && steps < 255; steps++ {
			var first string
			first, rest, _ = strings.Cut(rest, "/")
			path := filepath.Join(at, first)
			target, err := os.Readlink(path)
			if err != nil {
				at = path
				continue
			}
			if !seen[path] {
				seen[path] = true
				list = append(list, link{path, target})
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = strings.TrimPrefix(filepath.Join(target, rest), "/")
		}
	}
	return list
}
