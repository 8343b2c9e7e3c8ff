// Package sandbox confines a command, and owns its process tree.
//
// [Wrap] makes of a command line one that starts this program again, which
// confines itself and then executes the command, and does not get to its main function.
//
// Two processes stand between the caller and the command. The supervisor is what
// the caller started: it passes signals down, and what the command ended with up.
// The keeper is above all that the command starts, and ends with the supervisor,
// however that ends; and when the keeper or the command ends, so does everything
// below, also what left its session and its parent.
//
// docs/sandbox.md says what is enforced, by what, and what is not.
package sandbox

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Level says how much a command is confined.
type Level string

// The levels. Each confines what the one before it does, and more.
const (
	Off    Level = "off"    // not at all: its process tree ends with it, and no more; the zero value is the same
	Files  Level = "files"  // files, and signals to processes outside
	Strict Level = "strict" // also the network, and sockets without a file
)

// ParseLevel returns the level of that name.
func ParseLevel(name string) (Level, error) {
	switch l := Level(name); l {
	case Off, Files, Strict:
		return l, nil
	}
	return "", fmt.Errorf("there is no sandbox level %q; there are: %s, %s, %s", name, Off, Files, Strict)
}

// Network says what a command may reach at level [Strict].
type Network string

// The networks.
const (
	None Network = "none" // nothing; the zero value is the same
	Web  Network = "web"  // TCP to anywhere, but nobody can connect to it
	All  Network = "all"  // everything
	// Hosts is a network of its own, with nothing in it but the command's own servers
	// and the way out at [OutletAddress]: see [Profile.Outlet].
	Hosts Network = "hosts"
)

// OutletAddress is where a command with network [Hosts] finds the way out.
const OutletAddress = "127.0.0.1:3128"

// Limits bound a command and all that it starts, together. Zero means no limit.
type Limits struct {
	Memory    int64         // bytes
	Processes int           // at once, threads not counted
	CPU       time.Duration // that they have used
	// Processors is how many they may use at once, such as 1.5. It needs a
	// [Profile.Group].
	Processors float64
}

// Profile says what a command may do. The zero value supervises it only.
//
// All paths are absolute. Where a path of Read lies below one of Write, it can be
// read alone; and what lies below one of Hide cannot be reached, unless a longer
// path says otherwise. Both need a private root: see [Report].
type Profile struct {
	Level   Level
	Read    []string // files and folders that may be read and executed, besides System; those that do not exist are left out
	Write   []string // that may be changed too; they have to exist
	Hide    []string // that are neither, though they are below those; those that do not exist are left out
	Network Network  // what Strict leaves of the network
	// Outlet is the socket of an [Outlet], which is given what the command connects to
	// at [OutletAddress]; the command itself need not and should not reach it. It is
	// required for network Hosts, and for no other.
	Outlet string
	Limits Limits
	// Group is the control group in which one is made for a command with limits, see
	// [OpenGroups]; empty means that its limits are watched.
	Group string
	// Exceeded is a file to which a line is added for each command that is killed
	// because of a limit; empty means none. It is made if it is missing.
	Exceeded string
}

// Wrap returns a function that makes of a command line the one which runs it as
// the profile says. The function may be called at once and any number of times;
// the environment, folder and standard files of what it returns are those of the
// command, other descriptors are not handed on.
//
// The exit code of the command is passed on, and so is a signal that ends it. If
// the sandbox itself fails, the exit code is [ExitFailure] and standard error has
// one line that begins with "nestor: sandbox: ". A command that exceeds a limit
// is killed, with such a line.
//
// The error says what cannot be enforced here, and the way out.
func Wrap(p Profile) (func(argv []string) []string, error) {
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	wrap, err := wrap(p)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	return wrap, nil
}

// ExitFailure is what a wrapped command exits with when it was not run, because
// the sandbox failed.
const ExitFailure = 125

func (p Profile) check() error {
	var errs []error
	if _, err := ParseLevel(string(p.Level)); err != nil && p.Level != "" {
		errs = append(errs, err)
	}
	switch p.Network {
	case "", None, Web, All:
	case Hosts:
		if p.Level != Strict {
			errs = append(errs, fmt.Errorf("network %s needs level %s", Hosts, Strict))
		}
	default:
		errs = append(errs, fmt.Errorf("there is no network %q; there are: %s, %s, %s, %s", p.Network, None, Web, All, Hosts))
	}
	if (p.Outlet != "") != (p.Network == Hosts) {
		errs = append(errs, fmt.Errorf("an outlet is for network %s, which needs one", Hosts))
	}
	for _, list := range []struct {
		name  string
		paths []string
	}{{"Read", p.Read}, {"Write", p.Write}, {"Hide", p.Hide}} {
		for _, path := range list.paths {
			switch {
			case !filepath.IsAbs(path):
				errs = append(errs, fmt.Errorf("%s names %q, which is not absolute", list.name, path))
			case strings.ContainsRune(path, 0):
				errs = append(errs, fmt.Errorf("%s names %q, which no file can have as a name", list.name, path))
			case filepath.Clean(path) == "/":
				errs = append(errs, fmt.Errorf("%s names /, which would leave nothing to confine; name the folders below it, or use level %s", list.name, Off))
			}
		}
	}
	for name, path := range map[string]string{"Exceeded": p.Exceeded, "Outlet": p.Outlet, "Group": p.Group} {
		if path != "" && !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("%s names %q, which is not absolute", name, path))
		}
	}
	if p.Limits.Memory < 0 || p.Limits.Processes < 0 || p.Limits.CPU < 0 || p.Limits.Processors < 0 {
		errs = append(errs, errors.New("a limit is negative; zero means none"))
	}
	if p.Limits.Processors > 0 && p.Group == "" {
		errs = append(errs, errors.New("how many processors a command uses at once can be limited by a control group alone; leave it out"))
	}
	return errors.Join(errs...)
}

// confined tells whether more is wanted than to be supervised.
func (p Profile) confined() bool { return p.Level == Files || p.Level == Strict }

// own tells whether a command of that level has a network of its own, where one can
// be had.
func (n Network) own(level Level) bool {
	return level == Strict && (n == None || n == "" || n == Hosts)
}
