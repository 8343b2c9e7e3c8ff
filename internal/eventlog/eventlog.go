// Package eventlog is the log: the ordered, durable record of all events, in a
// JetStream stream. Whatever must survive is appended before it is acted upon;
// everybody else follows from a position.
//
// Events are opaque JSON here. Each belongs to a run, and a run to the tree of
// its root. Three numbers go with an event: its [Position] in the log, by which
// a reader resumes; its number in its run, counted from 0 without a gap, by
// which a reader knows that nothing is missing; and the fence of the writer,
// which is not shown to readers.
//
// # Writing
//
// Events of a run are stored in chunks, one message each: a synced write costs
// the same for one event as for fifty. A chunk leaves when the one before it is
// acknowledged and somebody waits for it, or 16 KiB have come together, or 30 ms have
// passed and nothing more has come for 5, or 60 ms have passed; the first of a writer
// leaves at once. So the size adapts to the disk by itself.
//
// A chunk is stored on condition that it follows the chunk that its writer
// saw last in the run. That is exact, where message ids are known only for a
// while: a chunk whose acknowledgement was lost is found and not stored twice,
// the events of a run have one order whoever writes them, and a writer whose
// fence is older than one that has written is refused with [ErrFenced].
//
// # Following
//
// One consumer per process reads the stream and hands each chunk to those
// followers whose filter it passes, by pointer, into a queue of bounded size.
// It never waits: a follower whose queue is full is marked, reads what it has,
// and then the rest from the stream itself, a window at a time, until it has
// caught up. A window is merged with what the [Archive] holds for it, which is
// read after it: a tree is archived before it is purged from the stream, so
// each event is found in one of them at least.
package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor/internal/broker"
)

var (
	// ErrFenced says that a writer with a later fence has written to the run. The
	// writer that gets it must stop: its attempt is over.
	ErrFenced = errors.New("a later attempt writes this run")

	// ErrArchived says that the events of the run were archived and purged: its
	// tree has ended.
	ErrArchived = errors.New("the run's tree is archived")

	// ErrClosed says that Run has ended.
	ErrClosed = errors.New("the log is closed")

	// ErrTooLarge says that an event or a blob exceeds its limit.
	ErrTooLarge = errors.New("too large")

	// ErrNotFound says that there is no such blob.
	ErrNotFound = errors.New("not found")
)

// Limits.
const (
	// MaxEvent is the size of an event in bytes. Of one that is larger, Fit keeps
	// what fits; what is appended as JSON is refused, and belongs in a blob.
	MaxEvent = 256 << 10

	// MaxBlob is the size of what is put in the object store.
	MaxBlob = 64 << 20

	// MaxID is the length of the id of a run or a root, which consists of
	// letters, digits, '-' and '_'.
	MaxID = 64

	// Budget is how many bytes the stream should hold at most, so that a restart
	// after a crash takes well under a second. It is kept by archiving finished
	// trees, not by refusing events; Stats tells.
	Budget = 256 << 20
)

// Options of a log. The zero value works.
type Options struct {
	Archive Archive // where purged trees are; nil means nowhere

	// Queue is how many bytes a follower may be behind in memory before it
	// reads from the stream; zero means 1 MiB.
	Queue int

	// Window is how many bytes a follower reads from the stream at once; zero
	// means 1 MiB.
	Window int

	// Readers is how many followers read from the stream at once; the others
	// wait. Zero means 8.
	Readers int
}

// Archive holds trees that were purged from the stream.
type Archive interface {
	// Events returns the archived events that pass the filter with positions
	// after the one and up to the other, in order. It must see every tree whose
	// archiving was finished when it is called. The iterator is single-use; an
	// error is the last thing it yields; breaking out stops the work.
	Events(ctx context.Context, filter Filter, after, upTo Position) iter.Seq2[Event, error]
}

// Event is one event of the log, or a delta.
type Event struct {
	Position Position // zero for a delta
	Root     string
	Run      string
	N        uint64 // which of its run, from 0; not of a delta
	Live     bool   // a delta: published, not stored
	Data     []byte // JSON, as it was appended; not to be changed: others hold it too
}

// Filter chooses events. Its zero value chooses all.
type Filter struct {
	Root string // empty means of every tree
	Run  string // empty means of every run
}

func (f Filter) match(root, run string) bool {
	return (f.Root == "" || f.Root == root) && (f.Run == "" || f.Run == run)
}

func (f Filter) check() error {
	if f.Root != "" {
		if err := checkID("root", f.Root); err != nil {
			return err
		}
	}
	if f.Run != "" {
		return checkID("run", f.Run)
	}
	return nil
}

// subject is what the chunks are on that f chooses.
func (f Filter) subject() string {
	root, run := "*", "*"
	if f.Root != "" {
		root = f.Root
	}
	if f.Run != "" {
		run = f.Run
	}
	return broker.EventSubject + root + "." + run
}

// checkID keeps what has a meaning in subjects, dots, wildcards and spaces,
// out of them.
func checkID(what, id string) error {
	if id == "" || len(id) > MaxID {
		return fmt.Errorf("id of %s %.80q: it must have 1 to %d characters", what, id, MaxID)
	}
	for _, c := range []byte(id) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return fmt.Errorf("id of %s %q: %q cannot be in it: letters, digits, '-' and '_' can", what, id, c)
		}
	}
	return nil
}

// Log appends and follows. All methods may be called at once, before Run they
// wait for it.
type Log struct {
	broker  *broker.Broker
	options Options
	hub     *hub
	readers chan struct{} // holds a token for each follower that reads from the stream

	started chan struct{} // closed by Run when all that follows is set
	ended   chan struct{} // closed by Run when nothing can be appended any more
	life    context.Context
	stream  jetstream.Stream

	link  link
	acked atomic.Uint64 // the highest sequence that was stored here
	tails tails

	closing sync.Mutex
	closed  bool // no flush may begin
	flushes sync.WaitGroup

	mu     sync.Mutex         // taken before a writer's
	shared map[string]*Writer // of Append, by root and run
}

// New returns a log in b, whose layout has it. Its Run must be called, once.
func New(b *broker.Broker, o Options) *Log {
	if o.Queue == 0 {
		o.Queue = 1 << 20
	}
	if o.Window == 0 {
		o.Window = 1 << 20
	}
	if o.Readers == 0 {
		o.Readers = 8
	}
	return &Log{
		broker:  b,
		options: o,
		hub:     newHub(o.Queue),
		readers: make(chan struct{}, o.Readers),
		started: make(chan struct{}),
		ended:   make(chan struct{}),
		shared:  map[string]*Writer{},
	}
}

// Run lets the others work until ctx ends, or until the broker can no longer
// write, which it returns. What was queued and not acknowledged by then is not
// stored: flush first. It returns when all that it started has ended.
func (l *Log) Run(ctx context.Context) error {
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer l.end(end)

	var wg sync.WaitGroup
	defer wg.Wait()
	defer end(ErrClosed)
	wg.Go(func() { l.link.watch(life, l.broker.Conn()) })
	wg.Go(func() {
		select {
		case <-l.broker.Failed():
			end(l.broker.Explain(errors.New("the log cannot go on")))
		case <-life.Done():
		}
	})
	s, err := l.open(life)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	l.life, l.stream = life, s
	l.hub.begin(s, l.broker.Conn())
	close(l.started)
	if err := l.hub.run(life, l); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return context.Cause(life)
	}
	return nil
}

// open finds the stream, which a cluster whose servers are changing places may
// take a while to answer for.
func (l *Log) open(ctx context.Context) (jetstream.Stream, error) {
	for {
		try, cancel := l.link.attempt(ctx, requestTimeout)
		s, err := l.broker.JetStream().Stream(try, broker.Events)
		cancel()
		if err == nil || errors.Is(err, jetstream.ErrStreamNotFound) || ctx.Err() != nil {
			return s, err
		}
		if !pause(ctx, 100*time.Millisecond) {
			return nil, err
		}
	}
}

// end makes everything fail that waits or comes later.
func (l *Log) end(end context.CancelCauseFunc) {
	l.closing.Lock()
	l.closed = true
	l.closing.Unlock()
	end(ErrClosed)
	l.flushes.Wait()
	l.hub.end()
	close(l.ended)
}

// running waits until the log can be used.
func (l *Log) running(ctx context.Context) error {
	select {
	case <-l.ended:
		return ErrClosed
	default:
	}
	select {
	case <-l.started:
		return nil
	case <-l.ended:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
