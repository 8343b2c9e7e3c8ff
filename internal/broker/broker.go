// Package broker is NATS with JetStream: a server embedded in this process,
// without a port and with its files in one folder, or a cluster that is
// dialled. It declares the streams and buckets that everything durable lives
// in (layout.go) and knows nothing of what is put in them.
//
// # What survives
//
// Every write is synced to disk before it is acknowledged, in every profile:
// an embedded server is always run with sync_interval "always". What was
// acknowledged survives SIGKILL of the process and a power cut of the machine,
// both; what was not may be there or not. A cluster that is dialled is run by
// somebody else: a client cannot ask a server for its sync interval, so it is
// for them to set "sync_interval: always" there. With the server's default, two
// minutes, a power cut loses everything since (seen in 2.15.2).
//
// # Damaged files
//
// What nats-server 2.15.2 does with files that are not as it left them:
//
//   - A stream folder whose meta.inf or meta.sum is missing, unreadable or
//     does not match is left out with a warning; the next declaration would
//     make an empty stream in its place.
//   - After an end that was not clean it reads every block. At the first
//     record that is cut or whose checksum is wrong it truncates the block
//     there and goes on; the records behind it are gone, and their sequences
//     are marked as deleted or given to other messages.
//   - After a clean end it trusts its index and looks at the last eight bytes
//     of the last block alone. A block that is missing or shorter is found
//     much later, or never. A flipped bit makes the rest of its block unreadable
//     and, in the last block, the stream end there.
//   - A write that fails freezes the stream until the server is started again;
//     a full disk turns JetStream off. Publishers get an error or no answer.
//
// None of this is an error to the server. [Open] therefore looks at the files
// before the server does. It keeps a file of its own, marks.json, with the last
// sequence of every stream and, at a clean end, the size of every block. After
// an end that was not clean it checks every record. When something that had
// been acknowledged is gone, it touches nothing and refuses with a
// [DamageError]; a last record that was cut while it was written, before
// anybody was told of it, is no damage. Flipped bits in a folder that was
// closed cleanly are found at the end of the last block, otherwise by readers:
// the log numbers its events.
package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrLocked is what every [LockedError] is.
	ErrLocked = errors.New("folder is in use")

	// ErrDamaged is what every [DamageError] is.
	ErrDamaged = errors.New("files are damaged")

	// ErrNewer says that a newer version of this program laid the streams out.
	ErrNewer = errors.New("layout is newer than this program")

	// ErrRefused says that a broker that was dialled does not let us in.
	ErrRefused = errors.New("the broker does not let us in")

	// ErrAway says that nobody answers where a broker was dialled.
	ErrAway = errors.New("the broker does not answer")

	// ErrForeign says that a stream of ours exists and is somebody else's.
	ErrForeign = errors.New("stream is not nestor's")
)

// Options say where the broker is. Either Dir or URL must be set.
type Options struct {
	Dir string // of the files of an embedded server; made if missing

	URL         string // of a cluster to dial instead: nats://host:port, several with commas between
	Credentials string // file with a user's JWT and key, for URL; empty means none but those in URL
	Token       string // of a server that listens as Listen says, for URL; empty means none

	// Replicas of every stream. Zero means as many as it has, and when it is
	// made 3 in a cluster, 1 otherwise.
	Replicas int

	// Listen makes the embedded server one that others can dial. Its zero value
	// opens no port.
	Listen Listen

	// AcceptDamage goes on with what is left of damaged files, once, instead of
	// refusing with a DamageError. Streams that cannot be read at all are moved to
	// the folder "damaged" in Dir, and made anew with sequences that were not given
	// out before; a stream that lost its end gives those sequences out again.
	AcceptDamage bool

	Log *slog.Logger // of what the server and the connection warn of; nil discards
}

// Broker is a connection to JetStream, and the server behind it if that is
// embedded. All methods may be called at once.
type Broker struct {
	nc *nats.Conn
	js jetstream.JetStream

	// Of an embedded server, otherwise nil and zero.
	dir    string
	srv    *server.Server
	log    *serverLog
	lock   *FolderLock
	marks  *marks
	first  map[string]uint64  // sequences of streams that are made anew after damage
	stop   context.CancelFunc // of the goroutine that keeps the marks
	marked chan struct{}      // closed by it when it has ended

	close    sync.Once
	closeErr error
}

// Open starts the embedded server or dials the cluster, declares the layout,
// migrating an older one, and returns when all of it can be used. It gives up
// when ctx ends. The caller closes the broker.
//
// It fails with a [LockedError] if another process has the folder, with a
// [DamageError] if acknowledged messages are gone from it, and with
// [ErrNewer] if its layout is of a newer version.
func Open(ctx context.Context, o Options) (*Broker, error) {
	return open(ctx, o, current)
}

func open(ctx context.Context, o Options, l layout) (_ *Broker, err error) {
	switch {
	case o.Dir == "" && o.URL == "":
		return nil, errors.New("opening the broker: neither a folder nor a URL is given")
	case o.Dir != "" && o.URL != "":
		return nil, errors.New("opening the broker: both a folder and a URL are given; it is one or the other")
	case o.Replicas < 0 || o.Replicas > 5:
		return nil, fmt.Errorf("opening the broker: %d replicas: at most 5 are possible, and 3 are usual", o.Replicas)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	b := &Broker{dir: o.Dir}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	var left streams
	if o.URL != "" {
		err = b.dial(ctx, o)
	} else {
		left, err = b.embed(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	if err := b.declare(ctx, l, o, left); err != nil {
		return nil, err
	}
	if b.marks != nil {
		if err := b.keepMarks(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// declare sees that the streams are as l says. Those that were left in order were
// declared by who left them: if they are of this version there is nothing to ask.
func (b *Broker) declare(ctx context.Context, l layout, o Options, left streams) error {
	if l.stands(left, o) {
		return nil
	}
	l.first = b.first
	if err := l.declareIn(ctx, b.js, o); err != nil {
		if errors.Is(err, errMissing) && b.marks != nil {
			return b.damaged([]string{err.Error()})
		}
		return fmt.Errorf("declaring the streams of the broker %s: %w", b.where(o), b.Explain(err))
	}
	return nil
}

func (b *Broker) where(o Options) string {
	if o.URL != "" {
		return "at " + redacted(o.URL)
	}
	return "in " + o.Dir
}

func (b *Broker) dial(ctx context.Context, o Options) error {
	options := connection(o.Log)
	if o.Credentials != "" {
		options = append(options, nats.UserCredentials(o.Credentials))
	}
	if o.Token != "" {
		options = append(options, nats.UserInfo(user, o.Token))
	}
	if deadline, ok := ctx.Deadline(); ok {
		options = append(options, nats.Timeout(max(time.Until(deadline), time.Millisecond)))
	}
	nc, err := nats.Connect(o.URL, options...)
	if err != nil {
		return fmt.Errorf("dialling the broker at %s: %w", redacted(o.URL), dialled(err))
	}
	b.nc = nc
	b.js, err = jetstream.New(nc)
	return err
}

// dialled tells what a failure to connect means.
func dialled(err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout), isNetwork(err):
		return fmt.Errorf("%w: %w", ErrAway, err)
	}
	return err
}

// isNetwork tells whether err is one of a connection, not of what was asked for.
func isNetwork(err error) bool {
	_, ok := errors.AsType[*net.OpError](err)
	return ok || errors.Is(err, io.EOF) || errors.Is(err, nats.ErrConnectionClosed)
}

// connection are the options of every connection: it is made again for ever
// when it breaks, and what is published meanwhile fails at once instead of
// arriving later, when its publisher has long given up or sent it again.
func connection(log *slog.Logger) []nats.Option {
	return []nats.Option{
		nats.Name("nestor"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("broker's connection", "error", err) // the client would print it
		}),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond),
		nats.ReconnectBufSize(-1),
	}
}

// JetStream is for streams, consumers and buckets.
func (b *Broker) JetStream() jetstream.JetStream { return b.js }

// Conn is for what is live only. Its owner is the broker: it is not to be
// closed.
func (b *Broker) Conn() *nats.Conn { return b.nc }

// Failed is closed when the embedded server can no longer write, because the
// disk is full, for one. Nothing that was acknowledged is lost; nothing more
// will be until a broker is opened anew. It is nil for a cluster.
func (b *Broker) Failed() <-chan struct{} {
	if b.log == nil {
		return nil
	}
	return b.log.failed
}

// Explain returns err, with the folder, the reason and the way out if the
// embedded server can no longer write.
func (b *Broker) Explain(err error) error {
	if err == nil || b.log == nil {
		return err
	}
	line := b.log.failure()
	if line == "" {
		return err
	}
	return fmt.Errorf("the broker in %s cannot write (%s): free space, or make the folder writable, and start again: %w", b.dir, line, err)
}

// Close ends the connection and the embedded server, when everything that it
// holds is on disk. It may be called more than once.
func (b *Broker) Close() error {
	b.close.Do(func() { b.closeErr = b.shutdown() })
	return b.closeErr
}

func (b *Broker) shutdown() error {
	if b.stop != nil {
		b.stop()
		<-b.marked
	}
	if b.nc != nil {
		b.nc.Close()
	}
	var err error
	if b.srv != nil {
		b.srv.Shutdown()
		b.srv.WaitForShutdown()
		if b.stop != nil {
			err = b.marks.closed()
		}
	}
	if b.lock != nil {
		err = errors.Join(err, b.lock.Release())
	}
	if err != nil {
		return fmt.Errorf("closing the broker in %s: %w", b.dir, err)
	}
	return nil
}
