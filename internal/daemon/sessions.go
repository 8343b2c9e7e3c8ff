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

// sessions writes the folders of sessions, until ctx ends. What cannot be written is
// told, and does not keep runs from working.
func (b *backend) sessions(ctx context.Context) error {
	taken, begun := b.worker.folders.Position()
	after := eventlog.Position(taken)
	if stats, err := b.log.Stats(ctx); err == nil && (!begun || after > stats.Last) {
		after = stats.Last // what was there before there were folders gets none
		if err := b.worker.folders.Taken(uint64(after)); err != nil {
			b.opts.Log.Warn("writing the folders of sessions", "error", err)
		}
	}
	b.opts.calm(ctx)
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
	return nil
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
