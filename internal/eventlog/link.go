package eventlog

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// requestTimeout is after how long a request that got no answer is made again.
const requestTimeout = 3 * time.Second

// errBroken ends a request whose answer will not come.
var errBroken = errors.New("the connection to the broker broke")

// link bounds requests by the connection that they are sent on. When it breaks
// they end at once, instead of after their time.
type link struct {
	mu    sync.Mutex
	whole context.Context // ends when the connection breaks; nil before watch
	cut   context.CancelFunc
}

// watch follows the connection until ctx ends.
func (l *link) watch(ctx context.Context, nc *nats.Conn) {
	changed := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(changed)
	for {
		l.mu.Lock()
		l.whole, l.cut = context.WithCancel(ctx)
		cut := l.cut
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		cut()
		if ctx.Err() != nil {
			return
		}
	}
}

// attempt returns a context for one request, which may take that long.
func (l *link) attempt(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	ctx, timeout := context.WithTimeout(ctx, limit)
	l.mu.Lock()
	defer l.mu.Unlock()
	stop := func() bool { return true }
	if l.whole != nil {
		stop = context.AfterFunc(l.whole, func() { cancel(errBroken) })
	}
	return ctx, func() {
		stop()
		timeout()
		cancel(nil)
	}
}

// persist makes a request until it is answered, or can never be: what is sent to a
// server that dies gets no answer.
func (l *Log) persist(ctx context.Context, request func(context.Context) error) error {
	return l.persistFor(ctx, requestTimeout, request)
}

// persistFor is persist for a request that may take longer.
func (l *Log) persistFor(ctx context.Context, limit time.Duration, request func(context.Context) error) error {
	try := func() error {
		ctx, cancel := l.link.attempt(ctx, limit)
		defer cancel()
		return request(ctx)
	}
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := try()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case l.life.Err() != nil:
			return context.Cause(l.life)
		case permanent(err):
			return l.broker.Explain(err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		case <-l.hub.gone:
			return ErrClosed
		}
	}
}

// info asks for the state of the stream.
func (l *Log) info(ctx context.Context) (info *jetstream.StreamInfo, err error) {
	err = l.persist(ctx, func(ctx context.Context) error {
		info, err = l.stream.Info(ctx)
		return err
	})
	return info, err
}

// errLate says that a server does not know yet what is known here.
var errLate = errors.New("the leader of the stream has changed and is not up to date")

// ask asks the leader of the stream, when it has all up to a sequence. A server
// that has just become the leader answers before it has (seen in 2.15.2), so it
// must be the same before and after, and have it before.
func (l *Log) ask(ctx context.Context, least uint64, request func() error) error {
	before := l.stream.CachedInfo()
	if before.Cluster == nil || before.Config.Replicas < 2 {
		return request()
	}
	before, err := l.stream.Info(ctx)
	if err != nil {
		return err
	}
	if before.State.LastSeq < least {
		return errLate
	}
	if err := request(); err != nil {
		return err
	}
	after, err := l.stream.Info(ctx)
	if err != nil {
		return err
	}
	if before.Cluster == nil || after.Cluster == nil || before.Cluster.Leader != after.Cluster.Leader {
		return errLate
	}
	return nil
}
