package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// A network of its own has a way out that nobody inside can widen: the keeper makes
// a listener in it, before the command is started; the supervisor, which is outside,
// hands the listener on to an Outlet; and whoever has that decides about each
// connection that is made to it.

const (
	goAhead = 'y' // first byte of the answer to who has handed a listener over; what follows another one is why not
	backlog = 128 // connections that wait to be accepted
)

// openOutlet makes the network of this process one in which it can reach itself, and
// hands over the way out of it, if there is one. It has to be called before rights
// are dropped.
func (o orders) openOutlet() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("switching loopback on: %w", err)
	}
	if len(o.Outlet) == 0 {
		return nil
	}
	at := netip.MustParseAddrPort(OutletAddress)
	if err := unix.Bind(s, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		return fmt.Errorf("opening %s: %w", at, err)
	}
	if err := unix.Listen(s, backlog); err != nil {
		return fmt.Errorf("opening %s: %w", at, err)
	}
	defer unix.Close(outletFD)
	return give(outletFD, s)
}

// handOver passes the way out that the keeper opens on to an outlet. What goes wrong
// the keeper says, which does not start the command then.
func (k *startedKeeper) handOver(path string) {
	defer k.outlet.Close()
	listener, err := take(int(k.outlet.Fd()))
	if err != nil {
		return // the keeper has ended
	}
	defer unix.Close(listener)
	answer := string(goAhead)
	if err := k.connect(path, listener); err != nil {
		answer = "n" + err.Error()
	}
	unix.Write(int(k.outlet.Fd()), []byte(answer))
}

// connect hands a listener to the outlet with that socket. The connection stays for
// as long as this process does.
func (k *startedKeeper) connect(path string, listener int) error {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening the folder of the outlet: %w", err)
	}
	defer unix.Close(dir)
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// By the folder's descriptor, since names of sockets are short.
	if err := unix.Connect(s, &unix.SockaddrUnix{Name: throughFD(dir, path)}); err != nil {
		unix.Close(s)
		return fmt.Errorf("connecting to the outlet: %w", err)
	}
	if err := give(s, listener); err != nil {
		unix.Close(s)
		return fmt.Errorf("handing over to the outlet: %w", err)
	}
	return nil
}

func throughFD(dir int, path string) string {
	return "/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(path)
}

// socketPair returns two ends of a connection.
func socketPair() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	return os.NewFile(uintptr(pair[0]), "outlet"), os.NewFile(uintptr(pair[1]), "outlet"), nil
}

// give sends a descriptor, and returns when it was taken, or why it was not.
func give(socket, fd int) error {
	if err := unix.Sendmsg(socket, []byte{0}, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL); err != nil {
		return err
	}
	answer := make([]byte, 4<<10)
	n, err := unix.Read(socket, answer)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(socket, answer)
	}
	switch {
	case err != nil:
		return err
	case n == 0:
		return io.ErrUnexpectedEOF
	case answer[0] != goAhead:
		return errors.New(string(answer[1:n]))
	}
	return nil
}

// take receives a descriptor.
func take(socket int) (fd int, err error) {
	control := make([]byte, unix.CmsgSpace(4))
	for {
		_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return -1, err
		}
		return only(control[:n])
	}
}

// only returns the one descriptor of a message, and closes it if it is not alone.
func only(control []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return -1, err
	}
	var all []int
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			all = append(all, fds...)
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	for _, fd := range all {
		unix.Close(fd)
	}
	return -1, fmt.Errorf("%d descriptors came, and one was to", len(all))
}

// Outlet is where commands with network [Hosts] find the way out: what each of them
// connects to at [OutletAddress] is handed to it as a listener.
type Outlet struct {
	path string
	dir  *os.File
	l    *net.UnixListener
}

// ListenOutlet makes an outlet whose socket is at path, which must not be there. The
// folder must be one that nobody but this user can enter, and no command.
func ListenOutlet(path string) (*Outlet, error) {
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("opening an outlet: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: throughFD(int(dir.Fd()), path), Net: "unix"})
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("opening an outlet: %w", err)
	}
	l.SetUnlinkOnClose(false) // by a name that has a meaning in this process alone
	return &Outlet{path, dir, l}, nil
}

// Close closes the outlet and removes its socket. Serve returns then.
func (o *Outlet) Close() error {
	err := errors.Join(o.l.Close(), os.Remove(o.path))
	return errors.Join(err, o.dir.Close())
}

// Serve calls serve, in a goroutine each, with the listener in the network of each
// command that begins, and ends its context when the command is over. It returns
// when the outlet is closed, or ctx ends, and all of them have returned.
func (o *Outlet) Serve(ctx context.Context, serve func(context.Context, net.Listener)) error {
	ctx, stop := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { o.l.Close() })()
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	for {
		conn, err := o.l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("waiting at an outlet: %w", err)
		}
		work.Go(func() {
			defer conn.Close()
			ctx, stop := context.WithCancel(ctx)
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			defer stop()
			l, err := receive(conn)
			if err != nil {
				fmt.Fprintf(conn, "n%v", err)
				return
			}
			if _, err := conn.Write([]byte{goAhead}); err != nil {
				l.Close()
				return
			}
			work.Go(func() {
				defer stop()
				io.Copy(io.Discard, conn) // until the supervisor is gone
			})
			serve(ctx, l)
			l.Close()
		})
	}
}

// receive takes the listener that comes over a connection.
func receive(conn *net.UnixConn) (net.Listener, error) {
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), control)
	if err != nil {
		return nil, err
	}
	fd, err := only(control[:n])
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens != 1 {
		return nil, errors.New("what came is no listener")
	}
	if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain != unix.AF_INET {
		return nil, errors.New("what came is no listener for IPv4")
	}
	return net.FileListener(f)
}
