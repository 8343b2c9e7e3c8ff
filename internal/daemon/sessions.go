package daemon

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/spawn"
)

// How often it is noted up to where the log was followed, and how long it takes
// until it is followed again when something went wrong.
const (
	noteEvery   = 2 * time.Second
	followAgain = time.Second
)

// sessions returns what writes the folders of sessions, until ctx ends. What cannot be
// written is told, and does not keep runs from working.
//
// In a project that has had no folders, what is in the log when it is called gets none:
// no run has begun then.
func (b *backend) sessions(ctx context.Context) func() error {
	taken, begun := b.worker.folders.Position()
	after := eventlog.Position(taken)
	if !begun {
		stats, err := b.log.Stats(ctx)
		if err != nil {
			if ctx.Err() == nil {
				b.opts.Log.Warn("no folders of sessions are written", "error", err)
			}
			return func() error { return nil }
		}
		after = stats.Last
		if err := b.worker.folders.Taken(uint64(after)); err != nil {
			b.opts.Log.Warn("writing the folders of sessions", "error", err)
		}
	}
	return func() error {
		b.opts.calm(ctx)
		if stats, err := b.log.Stats(ctx); err == nil {
			after = min(after, stats.Last) // it is another log
		}
		b.followSessions(ctx, after)
		return nil
	}
}

// followSessions writes what the log says after a position, until ctx ends.
func (b *backend) followSessions(ctx context.Context, after eventlog.Position) {
	for ctx.Err() == nil {
		var err error
		if after, err = b.writeSessions(ctx, after); err == nil || ctx.Err() != nil {
			break
		}
		if gap, ok := errors.AsType[*eventlog.GapError](err); ok {
			after = max(after, gap.Next)
		}
		b.opts.Log.Warn("following the log for the folders of sessions", "error", err)
		select {
		case <-time.After(followAgain):
		case <-ctx.Done():
		}
	}
	if err := b.worker.folders.Taken(uint64(after)); err != nil {
		b.opts.Log.Warn("writing the folders of sessions", "error", err)
	}
}

// writeSessions follows the log, and returns how far it came.
func (b *backend) writeSessions(ctx context.Context, after eventlog.Position) (eventlog.Position, error) {
	noted, pace := time.Now(), eventlog.Pace{Times: 3}
	for e, err := range b.log.Follow(ctx, eventlog.Filter{}, after) {
		if err != nil {
			return after, err
		}
		began := time.Now()
		if e.Is(spawn.Noted()...) {
			err = b.takeSession(ctx, e)
		}
		if err != nil && ctx.Err() == nil {
			b.opts.Log.Warn("writing the folder of a session", "root", e.Root, "run", e.Run, "error", err)
		}
		if ctx.Err() != nil {
			return after, nil // it is taken again
		}
		after = e.Position
		if time.Since(noted) > noteEvery {
			noted = time.Now()
			if err := b.worker.folders.Taken(uint64(after)); err != nil {
				b.opts.Log.Warn("writing the folders of sessions", "error", err)
			}
		}
		pace.Rest(ctx, began)
	}
	return after, nil
}

// takeSession writes what an event says to the folder of its session.
func (b *backend) takeSession(ctx context.Context, e eventlog.Event) error {
	event, err := e.Decode()
	if err != nil {
		return err
	}
	return b.worker.folders.Take(ctx, event, os.Getpid())
}

// topic returns what a root was asked.
func (b *backend) topic(ctx context.Context, root nestor.ID) string {
	if run, err := b.engine.Get(ctx, root); err == nil {
		return run.Task.Input
	}
	if info, err := b.history.Run(ctx, root); err == nil {
		return info.Title
	}
	return ""
}
