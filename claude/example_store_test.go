package claude_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"slices"
	"sync"

	"github.com/dfaf701a/nestor/claude"
)

// table is the smallest store: a real one would be a database. Package
// claudetest has the tests that a store should pass.
type table struct {
	mu   sync.Mutex
	rows map[claude.SessionKey][]json.RawMessage
}

func (t *table) Append(ctx context.Context, key claude.SessionKey, entries []json.RawMessage) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range entries {
		t.rows[key] = append(t.rows[key], slices.Clone(e))
	}
	return nil
}

func (t *table) Load(ctx context.Context, key claude.SessionKey) (entries []json.RawMessage, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.rows[key] {
		entries = append(entries, slices.Clone(e))
	}
	return entries, nil
}

// A copy of the session in a store, from which any machine can resume it.
func ExampleStore() {
	ctx := context.Background()
	store := &table{rows: map[claude.SessionKey][]json.RawMessage{}}
	opts := demo("is mirrored")
	opts.Store = store

	var session string
	for msg, err := range claude.Query(ctx, "Say hello.", opts) {
		if err != nil {
			log.Fatal(err)
		}
		session = msg.Head().SessionID
	}
	messages, err := claude.Transcripts{Store: store}.Messages(ctx, session, claude.MessageOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range messages {
		fmt.Println(m.Type)
	}
	// Output:
	// user
	// assistant
}
