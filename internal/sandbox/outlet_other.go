//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"net"
	"runtime"
)

// Outlet is where commands with network [Hosts] find the way out. There are none
// here.
type Outlet struct{}

// ListenOutlet fails: nothing here gives a command a network of its own.
func ListenOutlet(string) (*Outlet, error) { return nil, errNoOutlet() }

// Close does nothing.
func (*Outlet) Close() error { return nil }

// Serve fails.
func (*Outlet) Serve(context.Context, func(context.Context, net.Listener)) error {
	return errNoOutlet()
}

func errNoOutlet() error {
	return errors.New("a list of hosts cannot be enforced on " + runtime.GOOS + ", which gives no command a network of its own; leave the hosts out")
}
