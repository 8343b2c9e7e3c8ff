package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Headers of a batch, which the client has no names for.
const (
	batchID     = "Nats-Batch-Id"
	batchNumber = "Nats-Batch-Sequence"
	batchCommit = "Nats-Batch-Commit"
)

// Expect has a message stored only if the last one on its subject has that sequence;
// zero means that there is none.
func Expect(msg *nats.Msg, last uint64) {
	if msg.Header == nil {
		msg.Header = nats.Header{}
	}
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(last, 10))
}

// Together stores messages of one stream, a thousand at most, all or none of them,
// and syncs them once. They follow each other; the sequence of the last one is
// returned.
func (b *Broker) Together(ctx context.Context, messages []*nats.Msg) (last uint64, err error) {
	switch len(messages) {
	case 0:
		return 0, nil
	case 1: // for a batch the server makes files of its own
		if last, err = b.request(ctx, messages[0]); err != nil {
			return 0, fmt.Errorf("storing a message: %w", b.Explain(err))
		}
		return last, nil
	}
	id := nats.NewInbox()[len(nats.InboxPrefix):]
	commit := messages[len(messages)-1]
	for i, msg := range messages {
		if msg.Header == nil {
			msg.Header = nats.Header{}
		}
		msg.Header.Set(batchID, id)
		msg.Header.Set(batchNumber, strconv.Itoa(i+1))
		if msg == commit {
			break
		}
		if err := b.nc.PublishMsg(msg); err != nil {
			return 0, fmt.Errorf("storing %d messages: %w", len(messages), b.Explain(err))
		}
	}
	commit.Header.Set(batchCommit, "1")
	if last, err = b.request(ctx, commit); err != nil {
		return 0, fmt.Errorf("storing %d messages: %w", len(messages), b.Explain(err))
	}
	return last, nil
}

// Store stores a message if last is the sequence of the last one of its subject, zero
// if there is none, and returns its own when it is synced.
func (b *Broker) Store(ctx context.Context, msg *nats.Msg, last uint64) (uint64, error) {
	Expect(msg, last)
	return b.request(ctx, msg)
}

// request sends a message to a stream and returns its sequence when it is synced.
func (b *Broker) request(ctx context.Context, msg *nats.Msg) (uint64, error) {
	answer, err := b.nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return 0, err
	}
	return sequence(answer.Data)
}

// IsConflict tells whether a message was refused because the last one of its subject was
// not the expected one. A stream with replicas says so with a code of its own (seen in
// 2.15.2).
func IsConflict(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// sequence returns that of a message from what the server answers when it is stored.
// Nearly always this is {"stream":"NAME","seq":N}, for which no decoder is needed.
func sequence(answer []byte) (uint64, error) {
	if _, rest, ok := bytes.Cut(answer, []byte(`","seq":`)); ok && bytes.HasPrefix(answer, []byte(`{"stream":"`)) {
		if n, err := strconv.ParseUint(string(bytes.TrimSuffix(rest, []byte("}"))), 10, 64); err == nil {
			return n, nil
		}
	}
	var stored struct {
		Error    *jetstream.APIError `json:"error"`
		Sequence uint64              `json:"seq"`
	}
	if err := json.Unmarshal(answer, &stored); err != nil {
		return 0, fmt.Errorf("the server answers %.80q: %w", answer, err)
	}
	if stored.Error != nil {
		return 0, stored.Error
	}
	if stored.Sequence == 0 {
		return 0, fmt.Errorf("the server answers %.80q", answer)
	}
	return stored.Sequence, nil
}
