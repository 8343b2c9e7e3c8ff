package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor/internal/broker"
)

// Remember keeps what a task gave under a hash, in hex, of all that went into it,
// for a month. Another one under the same hash takes its place.
func (e *Engine) Remember(ctx context.Context, hash string, data []byte) error {
	kv, err := e.js.KeyValue(ctx, broker.Results)
	if err == nil {
		_, err = kv.Put(ctx, hash, data)
	}
	if err != nil {
		return fmt.Errorf("keeping a result: %w", e.b.Explain(err))
	}
	return nil
}

// Recall returns what was kept under a hash; nil if there is nothing.
func (e *Engine) Recall(ctx context.Context, hash string) ([]byte, error) {
	kv, err := e.js.KeyValue(ctx, broker.Results)
	if err != nil {
		return nil, fmt.Errorf("looking for an earlier result: %w", e.b.Explain(err))
	}
	entry, err := kv.Get(ctx, hash)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for an earlier result: %w", e.b.Explain(err))
	}
	return entry.Value(), nil
}
