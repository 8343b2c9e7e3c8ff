package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/plan"
)

const (
	planners    = 24               // inputs that are decided about at once
	plannerWait = 10 * time.Second // until an input is given to another process
	pullWait    = time.Second      // how long one request for a message lasts
	retryAfter  = time.Second      // until an input that could not be handled is tried again
)

// Run decides about what runs tell each other and about times that come, and
// carries out what was left undone, until ctx ends. Every process that may be the
// last one standing runs it.
func (e *Engine) Run(ctx context.Context) error {
	pullers, err := e.pullersFrom(ctx, []source{
		{broker.Orch, jetstream.ConsumerConfig{Durable: "planner", AckPolicy: jetstream.AckExplicitPolicy, AckWait: plannerWait, MaxAckPending: -1}},
		{broker.Tasks, jetstream.ConsumerConfig{
			Durable: "timers", FilterSubject: broker.TaskSubject + timerTask + "*", AckPolicy: jetstream.AckExplicitPolicy, AckWait: plannerWait, MaxAckPending: -1,
		}},
	})
	if err != nil {
		return err
	}
	defer closeAll(pullers)
	orch, timers := pullers[0], pullers[1]
	defer e.rest()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.persist(ctx, recent, e.repair) })
	for range planners {
		g.Go(func() error { return e.handle(ctx, orch, e.told) })
	}
	g.Go(func() error { return e.handle(ctx, timers, e.timed) })
	g.Go(func() error { return e.takeBack(ctx) })
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

// consumer makes a consumer, or takes the one that is there. A sole process makes
// it anew: what was delivered to the one before it is then delivered again at
// once, since in a work queue all that is there is unfinished.
func (e *Engine) consumer(ctx context.Context, stream string, config jetstream.ConsumerConfig) error {
	return e.persist(ctx, tryFor, func(ctx context.Context) error { return e.declare(ctx, stream, config) })
}

// persist calls do until it succeeds, each time for so long, while the broker is
// away: who works for a cluster is not ended by a server that changes places.
func (e *Engine) persist(ctx context.Context, each time.Duration, do func(context.Context) error) error {
	for {
		trying, cancel := context.WithTimeout(ctx, each)
		err := do(trying)
		cancel()
		if err == nil || ctx.Err() != nil || !e.patient(ctx, time.Now(), err) {
			return err
		}
	}
}

func (e *Engine) declare(ctx context.Context, stream string, config jetstream.ConsumerConfig) error {
	config.MemoryStorage = e.opts.Sole // what it knows is not to be known after a crash, so no file has to hold it
	err := errors.New("what was delivered before cannot be taken back")
	for range 5 {
		c, failed := e.js.CreateOrUpdateConsumer(ctx, stream, config)
		if failed == nil && (!e.opts.Sole || c.CachedInfo().Delivered.Consumer == 0) {
			return nil
		}
		if failed != nil {
			err = e.b.Explain(failed)
		}
		if !e.opts.Sole || isAway(failed) {
			break
		}
		// It was there, of another process or another kind. One that was being made when
		// the server was killed is not even found, and yet has its old state when it is
		// made again (seen in 2.15.2).
		if failed := e.js.DeleteConsumer(ctx, stream, config.Durable); failed != nil && !errors.Is(failed, jetstream.ErrConsumerNotFound) {
			err = e.b.Explain(failed)
			break
		}
	}
	return fmt.Errorf("consumer %s of stream %s: %w", config.Durable, stream, err)
}

// handle gives each message of a consumer to do, until ctx ends. What could not
// be done comes again.
func (e *Engine) handle(ctx context.Context, p *puller, do func(context.Context, *nats.Msg) error) error {
	e.Mend(ctx) // in order: a run that hears something has its own end told, if that was left undone
	for ctx.Err() == nil {
		msg, err := e.pull(ctx, p)
		if err != nil {
			return err
		}
		if msg == nil {
			continue
		}
		switch err := do(ctx, msg); {
		case err == nil || vain(msg, err):
			msg.Ack()
		case ctx.Err() != nil:
			return nil
		default:
			msg.NakWithDelay(retryAfter)
		}
	}
	return nil
}

// pull waits for a message for a while; it returns nil if there is none. It fails
// only if there never will be one.
func (e *Engine) pull(ctx context.Context, p *puller) (*nats.Msg, error) {
	list, err := p.fetch(ctx, 1, pullWait)
	if len(list) > 0 {
		return list[0], nil
	}
	if err == nil {
		return nil, nil
	}
	if e.b.Conn().IsClosed() {
		return nil, fmt.Errorf("the broker is closed: %w", err)
	}
	// The server is away, or has no leader: look again, not at once.
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
	}
	return nil, nil
}

// told gives a run what another one tells it.
func (e *Engine) told(ctx context.Context, msg *nats.Msg) error {
	id := nestor.ID(strings.TrimPrefix(msg.Subject, broker.OrchSubject))
	in, err := plan.DecodeInput(msg.Data)
	if err != nil {
		return err // of a newer version, which may have a process here
	}
	if ended, state := e.forgotten(ctx, id, in); ended {
		if watch, ok := in.(plan.Watch); ok {
			return e.done(ctx, watch.By, plan.RunEnded{Run: id, Status: state})
		}
		return nil // a submit that comes late must not make it again
	}
	if err := e.done(ctx, id, in); err != nil {
		return err
	}
	if _, submit := in.(plan.Submit); !submit || !e.opts.Alone {
		return nil
	}
	run, err := e.read(ctx, id)
	if err != nil {
		return err
	}
	return e.unhanded(ctx, run)
}

// forgotten tells whether in, which would begin the document of a run, is for one
// that has ended and is not in the broker any more.
func (e *Engine) forgotten(ctx context.Context, id nestor.ID, in plan.Input) (bool, nestor.State) {
	switch in.(type) {
	case plan.Watch, plan.Submit:
	default:
		return false, ""
	}
	if e.opts.Ended == nil || e.recall(id) != nil {
		return false, ""
	}
	state, ended := e.opts.Ended(ctx, id)
	return ended, state
}

// done gives a run what was delivered, and returns when all that follows from it
// is done too.
func (e *Engine) done(ctx context.Context, id nestor.ID, in plan.Input) error {
	en, err := e.heard(ctx, id, in)
	if err != nil {
		return err
	}
	return en.carriedOut(ctx)
}

// timed gives a run a time that has come.
func (e *Engine) timed(ctx context.Context, msg *nats.Msg) error {
	var task taskData
	if err := json.Unmarshal(msg.Data, &task); err != nil {
		return nil // not ours
	}
	return e.done(ctx, task.Run, plan.Timer{})
}

// vain tells whether a message for a run that has no document has come so often that
// there will be none: the run is gone. One for a run that is there is never given up.
func vain(msg *nats.Msg, err error) bool {
	const often = 20
	meta, metaErr := msg.Metadata()
	return errors.Is(err, errNowhere) && metaErr == nil && meta.NumDelivered > often
}

// settled drops an error that says that an input changes nothing: it was heard.
func settled(err error) error {
	for _, heard := range []error{nestor.ErrEnded, nestor.ErrRunNotFound, nestor.ErrStale, plan.ErrAncestor} {
		if errors.Is(err, heard) {
			return nil
		}
	}
	return err
}

// Settled returns what to give as Options.Settled to the next engine, when this one,
// which was alone, has ended; empty if something may be undone.
func (e *Engine) Settled(ctx context.Context) (string, error) {
	e.mu.Lock()
	settled := e.whole && !e.undone && e.sending == 0
	e.mu.Unlock()
	if !settled {
		return "", nil
	}
	documents, err := e.documents(ctx)
	if err != nil {
		return "", err
	}
	return mark(documents), nil
}

// mark says which documents these are, and which of their changes was the last.
func mark(documents map[string]jetstream.Stream) string {
	var marks []string
	for _, name := range broker.RunsBuckets() {
		info := documents[name].CachedInfo()
		marks = append(marks, fmt.Sprintf("%d of %s", info.State.LastSeq, info.Created.Format(time.RFC3339Nano)))
	}
	return strings.Join(marks, ", ")
}

// documents returns the streams of the buckets of documents.
func (e *Engine) documents(ctx context.Context) (map[string]jetstream.Stream, error) {
	names := broker.RunsBuckets()
	list := make([]jetstream.Stream, len(names))
	var g errgroup.Group
	for i, name := range names {
		g.Go(func() (err error) {
			list[i], err = e.js.Stream(ctx, broker.BucketStream(name))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("opening the documents of runs: %w", e.b.Explain(err))
	}
	all := map[string]jetstream.Stream{}
	for i, name := range names {
		all[name] = list[i]
	}
	return all, nil
}

// recent is how far back from the last change documents are looked at for
// commands that were not carried out. A command follows its write at once, so
// what is older was carried out, or its process has been away for longer. Most that
// were not are of the last moments.
const (
	recent      = 10 * time.Minute
	lastMoments = 5 * time.Second
)

// repair carries out the commands of the documents that changed last, if some may
// not have been: first those of the last moments, for which others wait.
func (e *Engine) repair(ctx context.Context) error {
	if e.isWhole() {
		return nil
	}
	if err := e.sendChanged(ctx, lastMoments, 0); err != nil {
		return err
	}
	e.mended()
	if err := e.sendChanged(ctx, recent, lastMoments); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.whole = true
	return nil
}

func (e *Engine) isWhole() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.whole
}

// changedWithin tells whether a run whose document was changed at some time is one of
// those that were from so long before the last change of their bucket on, and, unless that
// is zero, until so long before it. Buckets have each their own: all that is in one may
// have been moved there since.
func (e *Engine) changedWithin(id nestor.ID, at time.Time, from, until time.Duration) bool {
	last, ok := e.before[bucketOf(id)]
	return ok && !at.Before(last.at.Add(-from)) && (until == 0 || at.Before(last.at.Add(-until)))
}

// sendChanged carries out the commands of the documents that were changed within that
// time, in the order of their changes; but of runs that have ended last, those furthest
// down first: who sees the end of a run in the log has seen those of all below it.
func (e *Engine) sendChanged(ctx context.Context, from, until time.Duration) error {
	pause := func(time.Time) {} // others wait
	if until > 0 {
		pause = func(began time.Time) { pauseSince(ctx, began) }
	}
	ids, err := e.changed(ctx, from, until, pause)
	if err != nil {
		return fmt.Errorf("looking for what was left undone: %w", e.b.Explain(err))
	}
	finish := func(id nestor.ID, ended bool) (plan.Run, error) {
		defer pause(time.Now())
		return e.finish(ctx, id, ended)
	}
	var ended []fallen
	for _, id := range ids {
		run, err := finish(id, false)
		if isAway(err) {
			return err
		}
		if run.State.Ended() {
			ended = append(ended, fallen{id, run.Depth()})
		}
	}
	// Not by their changes: a run may have had one more after one above it has ended.
	slices.SortStableFunc(ended, func(x, y fallen) int { return cmp.Compare(y.depth, x.depth) })
	for _, f := range ended {
		if _, err := finish(f.id, true); isAway(err) {
			return err
		}
	}
	return ctx.Err() // then not all is done
}

// pauseSince rests for as long as it is since a moment, so that a million documents do
// not keep others from what they do.
func pauseSince(ctx context.Context, began time.Time) {
	pause := time.NewTimer(time.Since(began))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}

// fallen is a run that has ended.
type fallen struct {
	id    nestor.ID
	depth int
}

// changed lists the runs whose documents were changed within that time, in the order of
// their changes, and then those that this process has changed since it began: they are not
// where they were. It pauses now and then. All are known before any is looked at, which may
// change others.
func (e *Engine) changed(ctx context.Context, from, until time.Duration, pause func(time.Time)) ([]nestor.ID, error) {
	var all []change
	for bucket, last := range e.before {
		some, err := e.changedSince(ctx, bucket, last.at.Add(-from), last.sequence, pause)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(x, y change) int { return x.at.Compare(y.at) })
	var ids []nestor.ID
	for _, c := range all {
		if e.changedWithin(c.id, c.at, from, until) {
			ids = append(ids, c.id)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.AppendSeq(ids, maps.Keys(e.known)), nil
}

// change is the last one of a document.
type change struct {
	id nestor.ID
	at time.Time
}

// changedSince lists the changes in a bucket from some time on, up to one of them. It asks
// for those behind the first of that time, not for all documents: there may be a million.
func (e *Engine) changedSince(ctx context.Context, bucket string, since time.Time, last uint64, pause func(time.Time)) (all []change, err error) {
	const atOnce = 250
	c, err := e.runs[bucket].CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since, HeadersOnly: true, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: plannerWait,
	})
	if err != nil {
		return nil, err
	}
	p, err := e.pulling(broker.BucketStream(bucket), c.CachedInfo().Name, true)
	if err != nil {
		return nil, err
	}
	defer p.close()
	for n := uint64(0); ; {
		began := time.Now()
		list, err := p.fetch(ctx, atOnce, 0)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || len(list) == 0 {
			return all, err
		}
		for _, msg := range list {
			meta, err := msg.Metadata()
			if n++; err != nil || meta.Sequence.Consumer != n {
				return nil, fmt.Errorf("%w: change %d was lost on its way", errNoAnswer, n)
			}
			if meta.Sequence.Stream > last {
				return all, nil // what others do meanwhile may have no end
			}
			if _, id, ok := strings.Cut(msg.Subject, "."+docName("")); ok {
				all = append(all, change{nestor.ID(id), meta.Timestamp})
			}
		}
		pause(began)
	}
}

// finish carries out what the document of a run commands, and sees to it that a run
// which was at work in a process that is no more has a message; unless the run has ended,
// or only if it has, as ended says. It returns the run.
func (e *Engine) finish(ctx context.Context, id nestor.ID, ended bool) (run plan.Run, err error) {
	defer func() {
		if err != nil && !isAway(err) { // what is wrong with one document shows when it is needed
			e.unsettle()
		}
	}()
	if e.underWay(id) != nil {
		return plan.Run{}, nil // this process has ended it
	}
	en := e.recall(id)
	if en == nil {
		if en, err = e.load(ctx, id); err != nil || en.doc.Run.State.Ended() != ended {
			return orEmpty(en).doc.Run, err
		}
		err = e.carryOut(ctx, id, en.doc)
	} // else this process has changed it, which is all that it need have done
	if err == nil {
		err = e.unhanded(ctx, en.doc.Run)
	}
	return en.doc.Run, err
}
