package eventlog

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Purge removes the events of a tree up to a position from the stream. It is
// called by who archives them, when all of them up to there are committed, and
// with the position of the last. Events that came later stay. Those who follow
// find the others in the archive.
//
// The tree's blobs are not touched: see RemoveBlobs.
func (l *Log) Purge(ctx context.Context, root string, last Position) error {
	if err := checkID("root", root); err != nil {
		return fmt.Errorf("purging a tree: %w", err)
	}
	if err := l.running(ctx); err != nil {
		return fmt.Errorf("purging tree %s: %w", root, err)
	}
	err := l.persist(ctx, func(ctx context.Context) error {
		return l.stream.Purge(ctx, jetstream.WithPurgeSubject(Filter{Root: root}.subject()), jetstream.WithPurgeSequence(last.seq()+1))
	})
	if err != nil {
		return fmt.Errorf("purging tree %s: %w", root, err)
	}
	l.tails.forget(root)
	l.hub.purged(root)
	return nil
}

// Stats is what the log holds and who reads it.
type Stats struct {
	Bytes     uint64 // in the stream; compare with Budget
	Chunks    uint64
	Runs      uint64   // with events in the stream
	Last      Position // up to which events can exist
	Followers int      // in this process
	Behind    int      // of them, those who have more to read than their queue holds
}

// Stats asks for them.
func (l *Log) Stats(ctx context.Context) (Stats, error) {
	if err := l.running(ctx); err != nil {
		return Stats{}, fmt.Errorf("asking for the state of the log: %w", err)
	}
	info, err := l.info(ctx)
	if err != nil {
		return Stats{}, fmt.Errorf("asking for the state of the log: %w", err)
	}
	s := Stats{Bytes: info.State.Bytes, Chunks: info.State.Msgs, Runs: info.State.NumSubjects, Last: upTo(info.State.LastSeq)}
	s.Followers, s.Behind = l.hub.followers()
	return s, nil
}
