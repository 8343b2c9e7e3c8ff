package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor/internal/broker"
)

// draft is a document that is to replace the one of a revision.
type draft struct {
	name     string
	data     []byte
	revision uint64 // zero if there is none
}

// writeAll writes documents in that order, as one batch if there are several, and
// returns their revisions. It tries for as long as the broker may be away.
func (e *Engine) writeAll(ctx context.Context, list []draft) ([]uint64, error) {
	for began := time.Now(); ; {
		revisions, err := e.writeTogether(ctx, list)
		if err != nil && !isAway(err) {
			revisions, err = e.writeEach(ctx, list) // it says what is wrong with which
		}
		if err == nil || !e.patient(ctx, began, err) {
			return revisions, err
		}
	}
}

// writeEach writes documents one by one. What was written before is not again.
func (e *Engine) writeEach(ctx context.Context, list []draft) ([]uint64, error) {
	revisions := make([]uint64, len(list))
	for i, d := range list {
		var err error
		if revisions[i], err = e.write(ctx, d.name, d.data, d.revision); errors.Is(err, errConflict) {
			var is jetstream.KeyValueEntry
			if is, err = e.get(ctx, d.name); err == nil {
				revisions[i] = is.Revision()
				if !bytes.Equal(is.Value(), d.data) {
					err = fmt.Errorf("%s: %w", d.name, errConflict)
				}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return revisions, nil
}

// writeTogether writes documents as one batch.
func (e *Engine) writeTogether(ctx context.Context, list []draft) ([]uint64, error) {
	messages := make([]*nats.Msg, len(list))
	for i, d := range list {
		messages[i] = &nats.Msg{Subject: "$KV." + broker.Runs + "." + d.name, Data: d.data}
		broker.Expect(messages[i], d.revision)
	}
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	last, err := e.b.Together(ctx, messages)
	if err != nil {
		return nil, err
	}
	revisions := make([]uint64, len(list))
	for i := range revisions {
		revisions[i] = last - uint64(len(list)-1-i)
	}
	return revisions, nil
}
