package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

func wrap(p Profile) (func([]string) []string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	o := orders{Level: p.Level, Network: p.Network, Limits: p.Limits, Exceeded: []byte(p.Exceeded), Outlet: []byte(p.Outlet)}
	if p.Limits != (Limits{}) {
		o.Group = []byte(p.Group)
	}
	if p.confined() {
		r := check()
		if err := r.Refuses(p.Level, p.Network); err != nil {
			return nil, err
		}
		o.Private, o.User = r.Root, r.user
		o.Isolated = r.Offline && p.Network.own(p.Level)
		o.Loopback = p.Network == Hosts
		if o.Paths, err = placesOf(p); err != nil {
			return nil, err
		}
		if !o.Private {
			if at := o.carved(); at != "" {
				return nil, fmt.Errorf("what is at %s cannot be kept apart from the folder around it: %w, and here is none: %s; use level %s, or let what is around it not be written", at, errNeedsRoot, r.Why, Off)
			}
		}
	}
	args, err := o.arguments()
	if err != nil {
		return nil, err
	}
	prefix := append([]string{self, superviseMark}, args...)
	return func(argv []string) []string { return append(slices.Clone(prefix), argv...) }, nil
}

// placesOf returns the places of a profile by the length of their paths, each
// with the use that was named last: System, Read, Write, Hide.
func placesOf(p Profile) ([]place, error) {
	var list []place
	var errs []error
	add := func(path string, u use, required bool) {
		path = filepath.Clean(path)
		real, err := filepath.EvalSymlinks(path)
		switch {
		case err != nil && !required && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)):
			return
		case err != nil:
			errs = append(errs, fmt.Errorf("looking for %s: %w; make it first, or leave it out", path, err))
			return
		case real == "/":
			errs = append(errs, fmt.Errorf("%s is a link to /, which would leave nothing to confine", path))
			return
		}
		list = slices.DeleteFunc(list, func(o place) bool { return string(o.Real) == real && o.Name == nil })
		list = append(list, place{Real: []byte(real), Use: u})
		if path != real {
			list = append(list, place{Real: []byte(real), Name: []byte(path), Use: u})
		}
	}
	add("/etc", useBeneath, false)
	for _, path := range System() {
		add(path, useRead, false)
	}
	for path, u := range devices {
		add(path, u, false)
	}
	for _, path := range p.Read {
		add(path, useRead, false)
	}
	for _, path := range p.Write {
		add(path, useWrite, true)
	}
	for _, path := range p.Hide {
		add(path, useHide, false)
	}
	list = append(list, pins(list)...)
	slices.SortStableFunc(list, func(a, b place) int { return len(a.Real) - len(b.Real) })
	return list, errors.Join(errs...)
}

// pins returns the folders between a place and the one around it that may be
// written: whoever could move one could put another in its place.
func pins(list []place) (more []place) {
	seen := map[string]bool{}
	for _, p := range list {
		seen[string(p.Real)] = true
	}
	for _, p := range list {
		if p.Name != nil || p.Use != useHide && p.Use != useRead {
			continue
		}
		u, at := orders{Paths: list}.around(string(p.Real))
		if u != useWrite || at == "" {
			continue
		}
		for dir := filepath.Dir(string(p.Real)); dir != at; dir = filepath.Dir(dir) {
			if !seen[dir] {
				seen[dir] = true
				more = append(more, place{Real: []byte(dir), Use: usePin})
			}
		}
	}
	return more
}

// around returns the closest place around path and its use, or nothing.
func (o orders) around(path string) (u use, at string) {
	for _, p := range o.Paths {
		if real := string(p.Real); p.Use != usePin && len(real) > len(at) && strings.HasPrefix(path, real+"/") {
			u, at = p.Use, real
		}
	}
	return u, at
}

// carved returns a place that may be used less than what is around it, or
// nothing.
func (o orders) carved() string {
	for _, p := range o.Paths {
		u, at := o.around(string(p.Real))
		if at != "" && (u == useWrite || u == useRead) && p.Use < u {
			return string(p.Real)
		}
	}
	return ""
}

func check() Report {
	r := Report{calls: canFilter()}
	version, err := llsys.LandlockGetABIVersion()
	if err != nil {
		r.Why = fmt.Sprintf("this kernel has no Landlock (%v)", err)
	} else {
		r.Landlock = version
	}
	why := probe(&r)
	if r.Why == "" {
		r.Why = why
	}
	return r
}

// probe tries what namespaces can be had, as root with and without one for
// users, and returns why there are none.
func probe(r *Report) (why string) {
	for _, user := range []bool{false, true} {
		if !user && os.Geteuid() != 0 {
			continue
		}
		for _, net := range []struct{ isolated, loopback bool }{{true, true}, {true, false}, {false, false}} {
			o := orders{Level: Files, Private: true, User: user, Isolated: net.isolated, Loopback: net.loopback, Paths: []place{{Real: []byte("/usr"), Use: useRead}}}
			err := tryKeeper(o)
			if err == nil {
				r.Root, r.Offline, r.Outlet, r.user = true, net.isolated, net.loopback, user
				return ""
			}
			why = "no namespaces can be had: " + err.Error()
			r.noNet = err.Error()
		}
	}
	return why
}
