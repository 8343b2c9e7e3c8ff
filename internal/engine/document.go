package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/plan"
)

// document is what is kept of a run.
type document struct {
	Run    plan.Run `json:"run"`
	Serial uint64   `json:"serial"`           // of the last change; grows with each
	Outbox []batch  `json:"outbox,omitempty"` // what may not have been carried out yet, in order
}

// batch is what one change commands.
type batch struct {
	Serial   uint64        `json:"serial"` // of the change
	Commands plan.Commands `json:"commands"`

	encoded []byte // the commands, if somebody has written them
}

// entry is a document and its revision in the bucket. Nothing of it is changed
// but err, before sent is closed.
type entry struct {
	doc      document
	revision uint64 // zero if the bucket has none

	// Of a document that this process wrote.
	sent chan struct{} // closed when its commands have been carried out, or could not be; nil if others wrote it
	err  error         // why they could not be
	held *held         // until when they need not be; nil if they are at once
}

// held keeps the commands of a document for a moment. What is said of the start of a run
// is kept from the log: one that ends at once has it there together with its end, which is
// a write less of four. What the end of an attempt commands is kept for who executed it,
// who has nothing else to do: see apply.
type held struct {
	taken atomic.Bool
	carry func() // carries the commands out; for who has taken them
	late  *time.Timer
}

// holdFor is how long the commands of a document are held, unless somebody waits for
// them.
const holdFor = 10 * time.Millisecond

// mayHold tells whether the commands that follow from inputs may be held: all that is
// said of the start of a run here, and the end of an attempt. Who executes a run and has
// something to say of it waits for the first.
func (e *Engine) mayHold(ins []plan.Input, commands []plan.Command) bool {
	switch in := ins[0].(type) {
	case plan.Start:
		return in.New && e.opts.Alone && batch{Commands: commands}.only(isEvent)
	case plan.Finish:
		return true
	}
	return false
}

// hold has the commands of a document held, unless they are taken, until they are late.
func (en *entry) hold(carry func()) {
	h := &held{carry: carry}
	h.late = time.AfterFunc(holdFor, func() {
		if h.taken.CompareAndSwap(false, true) {
			carry()
		}
	})
	en.held = h
}

// take tells whether the commands of a document were held until now: then the caller
// sees to them.
func (en *entry) take() bool {
	if en.held == nil || !en.held.taken.CompareAndSwap(false, true) {
		return false
	}
	en.held.late.Stop()
	return true
}

// encode returns a document as the bucket has it. It is JSON as Marshal makes it, which
// would look at the commands once more, to take white space out of them.
func (d *document) encode() ([]byte, error) {
	run, err := json.Marshal(d.Run)
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, len(run)+d.commandsSize()+64)
	data = append(append(data, `{"run":`...), run...)
	data = strconv.AppendUint(append(data, `,"serial":`...), d.Serial, 10)
	for i, b := range d.Outbox {
		commands := b.encoded
		if commands == nil {
			if commands, err = b.Commands.MarshalJSON(); err != nil {
				return nil, err
			}
		}
		if i == 0 {
			data = append(data, `,"outbox":[`...)
		} else {
			data = append(data, ',')
		}
		data = strconv.AppendUint(append(data, `{"serial":`...), b.Serial, 10)
		data = append(append(append(data, `,"commands":`...), commands...), '}')
	}
	if len(d.Outbox) > 0 {
		data = append(data, ']')
	}
	return append(data, '}'), nil
}

// commandsSize is how many bytes the commands have, as far as they are encoded.
func (d *document) commandsSize() (n int) {
	for _, b := range d.Outbox {
		n += len(b.encoded) + 64
	}
	return n
}

func docName(id nestor.ID) string { return "run." + string(id) }

// bucketOf is the bucket that has the document of a run.
func bucketOf(id nestor.ID) string { return broker.RunsOf(docName(id)) }

// recall returns the document as this process wrote it, nil if it did not. It
// may be outdated.
func (e *Engine) recall(id nestor.ID) *entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known[id]
}

// underWay returns the document of a run that has ended by this process, as long as
// its commands are being carried out; otherwise nil.
func (e *Engine) underWay(id nestor.ID) *entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ending[id]
}

// maxKnown bounds the documents that are remembered.
const maxKnown = 4096

func (e *Engine) remember(id nestor.ID, en *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if en.doc.Run.State.Ended() {
		delete(e.known, id)
		e.ending[id] = en
		return
	}
	if len(e.known) >= maxKnown {
		for some := range e.known { // any: it is read again when it is needed
			delete(e.known, some)
			break
		}
	}
	e.known[id] = en
}

// sent takes note that the commands of a document were carried out, or could not be:
// then whoever comes next reads it, and sends them.
func (e *Engine) sent(id nestor.ID, en *entry, err error) {
	en.err = err
	close(en.sent)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ending[id] == en {
		delete(e.ending, id)
	}
	if err != nil {
		delete(e.known, id)
		e.undone = true
		return
	}
	e.over(en.doc.Run)
}

func (e *Engine) forget(id nestor.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.known, id)
}

// unsettle takes note that something may be written and not carried out.
func (e *Engine) unsettle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.undone = true
}

// load reads the document of a run; an empty one if there is none.
func (e *Engine) load(ctx context.Context, id nestor.ID) (*entry, error) {
	msg, err := e.fetch(ctx, id)
	if err != nil {
		return nil, err
	}
	if msg == nil {
		return &entry{}, nil
	}
	if own := e.underWay(id); own != nil && own.revision == msg.Sequence {
		return own, nil // whoever needs its commands carried out waits for that
	}
	return decode(id, msg)
}

// fetch asks the bucket for the document of a run; nil if there is none.
func (e *Engine) fetch(ctx context.Context, id nestor.ID) (*jetstream.RawStreamMsg, error) {
	if _, err := nestor.ParseID(string(id)); err != nil {
		return nil, err
	}
	began := time.Now()
	msg, err := e.get(ctx, docName(id))
	for err != nil && e.patient(ctx, began, err) {
		msg, err = e.get(ctx, docName(id))
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading run %s: %w", id, e.b.Explain(err))
	}
	return msg, nil
}

func decode(id nestor.ID, msg *jetstream.RawStreamMsg) (*entry, error) {
	en := &entry{revision: msg.Sequence}
	if err := json.Unmarshal(msg.Data, &en.doc); err != nil {
		return nil, fmt.Errorf("reading run %s: %w", id, err)
	}
	return en, nil
}

// read returns a run as it stands, to look at and not to change.
func (e *Engine) read(ctx context.Context, id nestor.ID) (plan.Run, error) {
	d, err := e.readDocument(ctx, id)
	return d.Run, err
}

// readDocument returns the document of a run, an empty one if there is none, to look at
// and not to change. What this engine wrote last it need not ask for if it is alone, and
// otherwise need not decode again: a thousand runs that wait look at each other all the
// time.
func (e *Engine) readDocument(ctx context.Context, id nestor.ID) (document, error) {
	known := e.recall(id)
	if known == nil {
		known = e.underWay(id)
	}
	if known != nil && e.opts.Alone {
		return known.doc, nil
	}
	msg, err := e.fetch(ctx, id)
	switch {
	case err != nil:
		return document{}, err
	case msg == nil:
		return document{}, nil
	case known != nil && known.revision == msg.Sequence:
		return known.doc, nil
	}
	en, err := decode(id, msg)
	if err != nil {
		return document{}, err
	}
	return en.doc, nil
}

// Reasons why an input that was refused is given again.
var (
	errUnconfirmed = errors.New("the document may have been outdated")
	errNowhere     = errors.New("there is no document, or not yet")
)

// heard is given for what was delivered: if it returns nil, it was heard, or
// changes nothing. Where a leader may answer with what was true
// a moment ago, a refusal counts only once the document that it is based on could
// be written again as it is.
func (e *Engine) heard(ctx context.Context, id nestor.ID, in plan.Input) (*entry, error) {
	en, err := e.given(ctx, id, in)
	if err == nil || settled(err) != nil || !e.replicated {
		return en, settled(err)
	}
	if en, err = e.load(ctx, id); err != nil {
		return en, err
	}
	switch _, _, refused := plan.Decide(en.doc.Run, in, time.Now()); {
	case en.revision == 0:
		return en, errNowhere
	case refused == nil:
		return en, errUnconfirmed
	}
	data, err := en.doc.encode()
	if err != nil {
		return en, err
	}
	if _, err := e.write(ctx, docName(id), data, en.revision); err != nil {
		return en, errUnconfirmed
	}
	e.forget(id)
	return en, nil
}

// tryFor is how long an answer is waited for before the same is asked again: what
// is sent to a server that dies gets none. Only tests change it.
var tryFor = 3 * time.Second

// get returns an entry of the buckets. Its sequence is what buckets call the revision.
func (e *Engine) get(ctx context.Context, name string) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	return e.runs[broker.RunsOf(name)].GetLastMsgForSubject(ctx, broker.RunsSubject(name))
}

// apply gives an input to a run: it decides, writes, and carries the commands
// out. It returns the run as it is then.
func (e *Engine) apply(ctx context.Context, id nestor.ID, in plan.Input) (plan.Run, error) {
	en, err := e.given(ctx, id, in)
	if err != nil {
		return en.doc.Run, err
	}
	if en.take() { // nobody has to be woken for it
		en.held.carry()
	}
	if err := en.carriedOut(ctx); err != nil {
		e.forget(id)
		return en.doc.Run, err
	}
	return en.doc.Run, nil
}

// done tells whether the commands of a document are known to be carried out.
func (en *entry) done() bool {
	if en.sent == nil {
		return len(en.doc.Outbox) == 0
	}
	select {
	case <-en.sent:
		return en.err == nil
	default:
		return false
	}
}

// carriedOut waits until the commands of a document are, if this process wrote it.
func (en *entry) carriedOut(ctx context.Context) error {
	if en.sent == nil {
		return nil
	}
	if en.take() {
		go en.held.carry()
	}
	select {
	case <-en.sent:
		return en.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// patience is how long a broker that is away is waited for.
const patience = 30 * time.Second

// patient waits a moment if err says that the broker is away, and tells whether
// to try again. Nothing is done twice by that: inputs and messages have names.
func (e *Engine) patient(ctx context.Context, began time.Time, err error) bool {
	if ctx.Err() != nil || e.b.Conn().IsClosed() || time.Since(began) > patience || !isAway(err) {
		return false
	}
	select {
	case <-time.After(50 * time.Millisecond):
		return true
	case <-e.b.Failed():
	case <-ctx.Done():
	}
	return false
}

// isAway tells whether err is one of a server that cannot be reached, or of a
// cluster without a leader.
func isAway(err error) bool {
	for _, away := range []error{
		nats.ErrReconnectBufExceeded, nats.ErrConnectionReconnecting, nats.ErrDisconnected, nats.ErrTimeout, nats.ErrNoResponders,
		jetstream.ErrNoStreamResponse, jetstream.ErrAsyncPublishTimeout, context.DeadlineExceeded, errNoAnswer,
	} {
		if errors.Is(err, away) {
			return true
		}
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.Code == 503
}

// write changes a document if it still has that revision.
func (e *Engine) write(ctx context.Context, name string, data []byte, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	written, err := e.b.Store(ctx, &nats.Msg{Subject: broker.RunsSubject(name), Data: data}, revision)
	if broker.IsConflict(err) {
		return 0, errConflict
	}
	if err != nil {
		return 0, fmt.Errorf("writing %s: %w", name, e.b.Explain(err))
	}
	return written, nil
}
