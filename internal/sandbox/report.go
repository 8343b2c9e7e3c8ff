package sandbox

import (
	"errors"
	"fmt"
)

// Report is what can be enforced on this machine.
type Report struct {
	Landlock int    // the version of its interface; zero means none
	Root     bool   // commands get a root of their own, which holds only what they may use, and process numbers of their own
	Offline  bool   // … and a network of their own, with nothing in it
	Outlet   bool   // … but the way out of network Hosts
	Why      string // why there is no Landlock, or no root; empty if there are both

	user  bool   // the root needs a namespace of users
	noNet string // why there is no Outlet, though there is a root
	calls bool   // system calls can be filtered
}

// Check returns what this machine can enforce. It starts this program once, to
// try it.
func Check() Report { return check() }

// Missing returns what a profile of that level and network demands and this
// machine cannot enforce, a sentence each. Nil means that nothing is missing.
func (r Report) Missing(level Level, network Network) (missing []string) {
	add := func(when bool, text string) {
		if when {
			missing = append(missing, text)
		}
	}
	private := r.Root
	offline := r.Offline && network.own(level)
	switch level {
	case Files, Strict:
		add(!private, "owner, mode and times of files outside can be changed by who may change them anyway, and what files there are can be found out: needs namespaces")
		add(!private && r.Landlock < 9, "sockets that are files outside, such as that of a daemon, can be connected to: needs namespaces, or Landlock 9")
		add(!private && r.Landlock < 6, "processes outside of the same user can be sent signals: needs namespaces, or Landlock 6")
		add(!private && r.Landlock < 5, "commands can be sent to devices outside that may be read (ioctl): needs namespaces, or Landlock 5")
		add(!private && r.Landlock < 3, "files outside can be cut short by who may write them: needs namespaces, or Landlock 3")
		add(r.Landlock == 1, "files cannot be moved or linked from one folder to another, also inside: needs Landlock 2")
	}
	if level == Strict {
		add(!offline && r.Landlock < 6, "abstract Unix sockets outside can be connected to: needs Landlock 6, or namespaces and no network")
		add(!offline && network != All && r.Landlock < 10, "UDP and raw packets can be sent and received: needs Landlock 10, or namespaces and no network")
		add(!r.calls && network != All, "sockets to the machine that a virtual machine runs in (vsock) can be connected to: needs amd64 or arm64")
		add(!offline && network != All, "multipath TCP, and TCP that sends before it connects (fast open), are not confined: needs namespaces and no network")
	}
	return missing
}

// Refuses returns why a profile of that level and network is refused here, with
// the way out. Nil means that it is not, though something may be [Report.Missing].
func (r Report) Refuses(level Level, network Network) error {
	offline := r.Offline && network.own(level)
	switch {
	case network == Hosts && !r.Outlet:
		why := r.Why
		if why == "" {
			why = r.noNet
		}
		return fmt.Errorf("a list of hosts cannot be enforced here: it needs a network of its own, and here is none: %s; leave the hosts out, or use Linux, as root or as a user who may make namespaces", why)
	case level != Files && level != Strict:
		return nil
	case r.Landlock == 0:
		return fmt.Errorf("level %s cannot be enforced here: %s; use level %s, or Linux 5.13 or newer with landlock in its lsm= list", level, r.Why, Off)
	case level == Strict && network != All && !offline && r.Landlock < 4:
		return fmt.Errorf("level %s cannot be enforced here: Landlock %d cannot confine TCP; use level %s, network %s, or Linux 6.7 or newer", level, r.Landlock, Files, All)
	}
	return nil
}

var errNeedsRoot = errors.New("a path of Hide, or one of Read below one of Write, needs a root of its own")
