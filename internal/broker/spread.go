package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// runs are the buckets of documents.
var runs = []string{"RUNS", "RUNS2"}

// RunsBuckets lists the buckets with one document for each run, changed by
// compare-and-set on its revision. There are two because a server syncs what it writes
// to a stream one by one, and what runs write most is their documents.
func RunsBuckets() []string { return slices.Clone(runs) }

// RunsOf returns the bucket that has the entry of that name, which is not empty.
func RunsOf(name string) string { return runs[int(name[len(name)-1])%len(runs)] }

// RunsSubject returns the subject of the entry of that name.
func RunsSubject(name string) string { return bucketSubject(RunsOf(name)) + name }

// bucketSubject is what the subjects of a bucket begin with.
func bucketSubject(bucket string) string { return "$KV." + bucket + "." }

// BucketStream returns the name of the stream of a bucket.
func BucketStream(bucket string) string { return "KV_" + bucket }

// spread moves documents from the first bucket, which had all of them up to layout 5,
// to those that have them now.
func spread(ctx context.Context, js jetstream.JetStream) error {
	from, err := js.Stream(ctx, BucketStream(runs[0]))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", runs[0], err)
	}
	for _, name := range runs[1:] {
		config := together(bucket(name))
		config.Storage, config.MaxMsgSize, config.Replicas = jetstream.FileStorage, MaxDocument, from.CachedInfo().Config.Replicas
		config.Metadata = map[string]string{ours: "5"} // it is declared as all others when all is moved
		if _, err := js.CreateOrUpdateStream(ctx, config); err != nil {
			return fmt.Errorf("bucket %s: %w", name, err)
		}
	}
	info, err := from.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", runs[0], err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for subject := range info.State.Subjects {
		name := strings.TrimPrefix(subject, bucketSubject(runs[0]))
		if RunsSubject(name) == subject {
			continue
		}
		g.Go(func() error {
			if err := move(ctx, js, from, subject, RunsSubject(name)); err != nil {
				return fmt.Errorf("moving %s: %w", name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// move moves what a stream has on a subject to another one, unless that has something:
// then it was moved before.
func move(ctx context.Context, js jetstream.JetStream, from jetstream.Stream, subject, to string) error {
	msg, err := from.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // another server has moved it
	}
	if err != nil {
		return err
	}
	moved := &nats.Msg{Subject: to, Data: msg.Data}
	Expect(moved, 0)
	if _, err := js.PublishMsg(ctx, moved); err != nil && !IsConflict(err) {
		return err
	}
	return from.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(msg.Sequence+1))
}
