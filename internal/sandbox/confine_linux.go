package sandbox

import (
	"fmt"
	"strconv"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// What may be done with files, in the words of Landlock. Nobody may make devices.
const (
	readFile  landlock.AccessFSSet = llsys.AccessFSExecute | llsys.AccessFSReadFile
	readDir   landlock.AccessFSSet = readFile | llsys.AccessFSReadDir
	writeFile landlock.AccessFSSet = readFile | llsys.AccessFSWriteFile | llsys.AccessFSTruncate | llsys.AccessFSResolveUnix
	writeDir  landlock.AccessFSSet = writeFile | readDir | llsys.AccessFSRemoveDir | llsys.AccessFSRemoveFile |
		llsys.AccessFSMakeDir | llsys.AccessFSMakeReg | llsys.AccessFSMakeSock | llsys.AccessFSMakeFifo |
		llsys.AccessFSMakeSym | llsys.AccessFSRefer
	device   landlock.AccessFSSet = llsys.AccessFSReadFile | llsys.AccessFSWriteFile | llsys.AccessFSTruncate
	terminal landlock.AccessFSSet = device | llsys.AccessFSIoctlDev
)

// confine gives this process a root of its own, if it is to have one, and takes
// from it and all that it starts whatever the orders do not grant. Rights of root
// are taken from this thread alone, which has to be the one that starts the
// command.
func confine(o orders) error {
	opened, err := open(o.Paths)
	if err != nil {
		return err
	}
	if o.Private {
		if err := makeRoot(opened); err != nil {
			return fmt.Errorf("making a root: %w", err)
		}
	}
	unix.KeyctlJoinSessionKeyring("") // where there are keyrings, an empty one
	if err := restrict(o, opened); err != nil {
		return fmt.Errorf("confining by Landlock: %w", err)
	}
	if err := dropRights(o.Private && !o.User); err != nil {
		return fmt.Errorf("dropping rights: %w", err)
	}
	if o.Level == Strict && o.Network != All && canFilter() {
		if err := filterSockets(); err != nil {
			return err
		}
	}
	for _, p := range opened {
		if p.fd >= 0 {
			unix.Close(p.fd)
		}
	}
	// Nobody below may look into this process, whose other threads have more
	// rights.
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// openPlace is a place that is held open.
type openPlace struct {
	place
	fd   int // -1 for another name of the same place
	dir  bool
	name string // the real path
}

// open opens places without following links: what has become one since the
// profile was made is an error.
func open(places []place) (list []openPlace, err error) {
	for _, p := range places {
		o := openPlace{place: p, fd: -1, name: string(p.Real)}
		if p.Name == nil {
			o.fd, err = unix.Openat2(unix.AT_FDCWD, o.name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
			if err == unix.ENOENT && p.Use != useWrite {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("opening %s: %w", o.name, err)
			}
			var stat unix.Stat_t
			if err := unix.Fstat(o.fd, &stat); err != nil {
				return nil, fmt.Errorf("looking at %s: %w", o.name, err)
			}
			o.dir = stat.Mode&unix.S_IFMT == unix.S_IFDIR
		}
		list = append(list, o)
	}
	return list, nil
}

// restrict lets this process be confined by Landlock.
func restrict(o orders, opened []openPlace) error {
	version, err := llsys.LandlockGetABIVersion()
	if err != nil {
		return err
	}
	var rules []landlock.Rule
	add := func(access landlock.AccessFSSet, path string) {
		if version < 2 {
			access &^= llsys.AccessFSRefer // cannot be granted
		}
		rules = append(rules, landlock.PathAccess(access, path))
	}
	for _, p := range opened {
		if access := accessOf(p); p.fd >= 0 && access != 0 {
			add(access, "/proc/self/fd/"+strconv.Itoa(p.fd))
		}
	}
	add(llsys.AccessFSReadFile|llsys.AccessFSReadDir, "/proc")
	if o.Private {
		add(llsys.AccessFSReadDir, "/") // there is nothing in it but what was granted
		for _, path := range []string{"/tmp", "/dev/shm"} {
			add(writeDir, path)
		}
		rules = append(rules, landlock.PathAccess(terminal|llsys.AccessFSReadDir, "/dev/pts").IgnoreIfMissing())
	}
	config := landlock.Config{HandledAccessFS: landlock.V11.HandledAccessFS, Scoped: llsys.ScopeSignal}
	if o.Level == Strict {
		config.Scoped |= llsys.ScopeAbstractUnixSocket
		switch o.Network {
		case None, "":
			config.HandledAccessNet = landlock.V11.HandledAccessNet
		case Hosts: // there is nothing in its network to be kept from
		case Web:
			config.HandledAccessNet = llsys.AccessNetBindTCP
		}
	}
	return config.BestEffort().Restrict(rules...)
}

func accessOf(p openPlace) landlock.AccessFSSet {
	switch {
	case p.Use == useRead && p.dir:
		return readDir
	case p.Use == useRead:
		return readFile
	case p.Use == useWrite && p.dir:
		return writeDir
	case p.Use == useWrite:
		return writeFile
	case p.Use == useDevice:
		return device
	case p.Use == useTerm:
		return terminal
	}
	return 0
}

// kept are the rights of root that reach no further than what may be written
// anyway, in a root of one's own: archives are unpacked with them.
var kept = []uint{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID}

// dropRights takes from this thread the capabilities that it has, except for
// kept, and the way to get them back.
func dropRights(keep bool) error {
	var left uint32
	if keep {
		for _, c := range kept {
			left |= 1 << c
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	for c := range uint(64) {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if err != nil {
			break // there are no more
		}
		if has == 1 && (c > 31 || left&(1<<c) == 0) {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && err != unix.EPERM {
				return err
			}
		}
	}
	unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	var have [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &have[0]); err != nil {
		return err
	}
	left &= have[0].Permitted
	data := [2]unix.CapUserData{{Effective: left, Permitted: left}}
	return unix.Capset(&header, &data[0])
}
