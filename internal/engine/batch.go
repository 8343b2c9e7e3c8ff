package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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
		if err != nil && !isAway(err) || len(list) == 1 {
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

// Headers of a batch, which the client has no names for.
const (
	batchID     = "Nats-Batch-Id"
	batchNumber = "Nats-Batch-Sequence"
	batchCommit = "Nats-Batch-Commit"
)

// writeTogether writes documents as one batch, which the server syncs once.
func (e *Engine) writeTogether(ctx context.Context, list []draft) ([]uint64, error) {
	id := nats.NewInbox()
	var last *nats.Msg
	for i, d := range list {
		msg := nats.NewMsg("$KV." + broker.Runs + "." + d.name)
		msg.Data = d.data
		msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(d.revision, 10))
		msg.Header.Set(batchID, id[len(nats.InboxPrefix):])
		msg.Header.Set(batchNumber, strconv.Itoa(i+1))
		if i == len(list)-1 {
			msg.Header.Set(batchCommit, "1")
			last = msg
			break
		}
		if err := e.b.Conn().PublishMsg(msg); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	answer, err := e.b.Conn().RequestMsgWithContext(ctx, last)
	if err != nil {
		return nil, fmt.Errorf("writing %d documents: %w", len(list), e.b.Explain(err))
	}
	var stored struct {
		Error    *jetstream.APIError `json:"error"`
		Sequence uint64              `json:"seq"` // of the last one
	}
	if err := json.Unmarshal(answer.Data, &stored); err != nil {
		return nil, fmt.Errorf("writing %d documents: the server answers %.80q: %w", len(list), answer.Data, err)
	}
	if stored.Error != nil {
		return nil, fmt.Errorf("writing %d documents: %w", len(list), e.b.Explain(stored.Error))
	}
	revisions := make([]uint64, len(list))
	for i := range revisions {
		revisions[i] = stored.Sequence - uint64(len(list)-1-i)
	}
	return revisions, nil
}
