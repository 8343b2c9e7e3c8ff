package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
)

// Forget removes the documents of runs that have ended, and the keys that they
// were submitted by, without a trace: [Engine.Get] and [Engine.Wait] do not know
// them any more, and a submission with such a key makes a new run. Runs that are
// not there are passed over. It refuses a run that has not ended, and forgets
// those before it.
//
// It is for who has put the whole tree somewhere else, long enough after its end
// that nothing is on its way to it.
func (e *Engine) Forget(ctx context.Context, runs ...nestor.ID) error {
	for _, id := range runs {
		if err := e.forgetRun(ctx, id); err != nil {
			return fmt.Errorf("forgetting run %s: %w", id, err)
		}
	}
	return nil
}

var errGoesOn = errors.New("it has not ended")

func (e *Engine) forgetRun(ctx context.Context, id nestor.ID) error {
	for {
		en, err := e.load(ctx, id)
		if err != nil || en.revision == 0 {
			return err
		}
		run := en.doc.Run
		if !run.State.Ended() {
			return errGoesOn
		}
		// The key goes first: one that led to a run without a document would have
		// it run again.
		if run.Key != "" {
			if err := e.forgetKey(ctx, keyName(string(run.Parent())+"\n"+run.Key), id); err != nil {
				return err
			}
		}
		if err := e.erase(ctx, docName(id), en.revision); err != nil {
			return err
		}
		// Look again: it may have been changed in between, and is there still.
	}
}

// forgetKey removes a key that leads to the run.
func (e *Engine) forgetKey(ctx context.Context, name string, id nestor.ID) error {
	msg, err := e.get(ctx, name)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return e.b.Explain(err)
	}
	if string(msg.Data) != string(id) {
		return nil
	}
	return e.erase(ctx, name, msg.Sequence)
}

// erase removes an entry from the stream of its bucket, up to a revision. A deletion
// would leave a mark for each.
func (e *Engine) erase(ctx context.Context, name string, revision uint64) error {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	stream := e.runs[broker.RunsOf(name)]
	if err := stream.Purge(ctx, jetstream.WithPurgeSubject(broker.RunsSubject(name)), jetstream.WithPurgeSequence(revision+1)); err != nil {
		return e.b.Explain(err)
	}
	return nil
}
