package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The streams and buckets, and the subjects of their messages. Whoever uses
// one takes its name from here.
const (
	// Orch is the work queue of inputs to the plan, on subjects orch.>.
	Orch        = "ORCH"
	OrchSubject = "orch."

	// Runs is the bucket with one document for each run, changed by
	// compare-and-set on its revision.
	Runs = "RUNS"

	// Tasks is the work queue of tasks, on subjects task.>. A message on later.>
	// that carries a schedule is delivered on its target, a subject of the same
	// stream, when its time has come.
	Tasks        = "TASKS"
	TaskSubject  = "task."
	LaterSubject = "later."

	// Events is the log, in chunks, on subjects event.ROOT.RUN.
	Events       = "EVENTS"
	EventSubject = "event."

	// DeltaSubject is where what is live only is published, on delta.ROOT.RUN.
	// No stream holds it.
	DeltaSubject = "delta."

	// Blobs is the object store of what is too large for the log.
	Blobs = "BLOBS"

	// Meta is the bucket that says which layout this is.
	Meta = "META"
)

// MaxDocument bounds a document in Runs, and a message in any stream.
const MaxDocument = 1 << 20

// Later makes a message for Tasks that is delivered on target, with its data,
// when at has come. The subject begins with LaterSubject and names the
// schedule: another one on it takes its place.
//
// jetstream.WithScheduleAt cuts the time to the second, so that it comes up to
// a second early (seen in 1.55.0).
func Later(subject, target string, at time.Time, data []byte) *nats.Msg {
	msg := nats.NewMsg(subject)
	msg.Header.Set("Nats-Schedule", "@at "+at.UTC().Format(time.RFC3339Nano))
	msg.Header.Set("Nats-Schedule-Target", target)
	msg.Data = data
	return msg
}

// layout is what one version of this program expects to find.
type layout struct {
	version int
	streams []jetstream.StreamConfig
	buckets []jetstream.KeyValueConfig
	objects []jetstream.ObjectStoreConfig

	// steps[i] makes layout i+2 of layout i+1. It may be cut off and run again,
	// and by two servers at once. Fields that the server can change in place
	// need none: they are declared.
	steps []func(context.Context, jetstream.JetStream) error
}

var current = layout{
	version: 1,
	streams: []jetstream.StreamConfig{
		{
			Name:      Orch,
			Subjects:  []string{OrchSubject + ">"},
			Retention: jetstream.WorkQueuePolicy,
			// An input is published again by who was not told that it arrived: a
			// client that lost its connection, an outbox after a crash. Both come
			// back within minutes. The window is no more than a saving: the server
			// knows the ids of messages that it still holds, so one that was
			// handled before a restart can come twice (seen in 2.15.2), and the plan
			// must drop it by its fence.
			Duplicates:  10 * time.Minute,
			AllowDirect: true,
		},
		{
			Name:      Tasks,
			Subjects:  []string{TaskSubject + ">", LaterSubject + ">"},
			Retention: jetstream.WorkQueuePolicy,
			// The same, for the outbox of a run's document.
			Duplicates:        10 * time.Minute,
			AllowMsgSchedules: true,
			AllowDirect:       true,
		},
		{
			Name:      Events,
			Subjects:  []string{EventSubject + "*.*"},
			Retention: jetstream.LimitsPolicy,
			// The smallest that the server takes. Chunks are kept from being stored
			// twice by the sequence that they expect, which is exact; and all ids
			// within the window are read again at every start.
			Duplicates: 100 * time.Millisecond,
			// Not AllowDirect: any replica would answer then, also one that lags,
			// and who asks where a run or a tree ends must be told the truth.
		},
	},
	buckets: []jetstream.KeyValueConfig{
		{Bucket: Runs, History: 1, MaxValueSize: MaxDocument},
	},
	objects: []jetstream.ObjectStoreConfig{
		{Bucket: Blobs},
	},
}

// ours marks a stream as declared here, in its metadata.
const ours = "nestor.layout"

// errMissing says that a stream was declared once and is gone.
var errMissing = errors.New("stream is gone")

// layoutKey is the key in Meta under which the version is kept, as a document.
const layoutKey = "layout"

type layoutDocument struct {
	Layout int `json:"layout"`
}

// patience is how long a cluster may take to find its leader and its places.
const patience = 30 * time.Second

// declareIn declares l, again and again in a cluster that is only forming: it
// loses requests, or finds no place for a replica yet.
func (l layout) declareIn(ctx context.Context, js jetstream.JetStream, o Options) error {
	if o.URL == "" && o.Listen.Cluster == "" {
		return l.declare(ctx, js, o)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		try, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := l.declare(try, js, o)
		cancel()
		if err == nil || errors.Is(err, ErrNewer) || errors.Is(err, ErrForeign) || errors.Is(err, errMissing) {
			return err
		}
		if last == nil || !errors.Is(err, context.DeadlineExceeded) {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: see that its servers run, and that there are at least %d", last, o.Replicas)
		}
	}
}

// declare makes or changes what l lists, after the steps from an older
// version. The version is written last, so that where it stands all is there.
func (l layout) declare(ctx context.Context, js jetstream.JetStream, o Options) error {
	replicas := o.Replicas
	meta := jetstream.KeyValueConfig{Bucket: Meta, History: 1}
	exists, err := l.check(ctx, js, "KV_"+Meta, 0)
	if err != nil {
		return err
	}
	l.finishBucket(&meta, replicas)
	var kv jetstream.KeyValue
	if exists {
		kv, err = js.KeyValue(ctx, Meta) // changed, if at all, once its version is known not to be newer
	} else {
		kv, err = js.CreateOrUpdateKeyValue(ctx, meta)
	}
	if err != nil {
		return fmt.Errorf("bucket %s: %w", Meta, err)
	}
	was, revision, err := readVersion(ctx, kv)
	if err != nil {
		return err
	}
	if was > l.version {
		return fmt.Errorf("the broker's files were written by a newer nestor (layout %d; this one knows %d): use that version, or give this one a folder or an account of its own: %w", was, l.version, ErrNewer)
	}
	for v := max(was, 1); was > 0 && v < l.version; v++ {
		if err := l.steps[v-1](ctx, js); err != nil {
			return fmt.Errorf("migrating from layout %d to %d: %w", v, v+1, err)
		}
	}

	// A stream that a migration brings is not missing.
	expect := 0
	if was == l.version && !o.AcceptDamage {
		expect = was
	}
	for _, config := range l.streams {
		if err := l.stream(ctx, js, config, replicas, expect); err != nil {
			return fmt.Errorf("stream %s: %w", config.Name, err)
		}
	}
	for _, config := range append([]jetstream.KeyValueConfig{meta}, l.buckets...) {
		if _, err := l.check(ctx, js, "KV_"+config.Bucket, expect); err != nil {
			return fmt.Errorf("bucket %s: %w", config.Bucket, err)
		}
		l.finishBucket(&config, replicas)
		if _, err := js.CreateOrUpdateKeyValue(ctx, config); err != nil {
			return fmt.Errorf("bucket %s: %w", config.Bucket, err)
		}
	}
	for _, config := range l.objects {
		if _, err := l.check(ctx, js, "OBJ_"+config.Bucket, expect); err != nil {
			return fmt.Errorf("object store %s: %w", config.Bucket, err)
		}
		config.Replicas, config.Storage, config.Metadata = replicas, jetstream.FileStorage, l.metadata()
		if _, err := js.CreateOrUpdateObjectStore(ctx, config); err != nil {
			return fmt.Errorf("object store %s: %w", config.Bucket, err)
		}
	}
	if was == l.version {
		return nil
	}
	return l.writeVersion(ctx, kv, revision)
}

func (l layout) stream(ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, replicas, expect int) error {
	if _, err := l.check(ctx, js, config.Name, expect); err != nil {
		return err
	}
	config.Replicas, config.Storage, config.Metadata = replicas, jetstream.FileStorage, l.metadata()
	config.MaxMsgSize = MaxDocument
	_, err := js.CreateOrUpdateStream(ctx, config)
	return err
}

func (l layout) finishBucket(config *jetstream.KeyValueConfig, replicas int) {
	config.Replicas, config.Storage, config.Metadata = replicas, jetstream.FileStorage, l.metadata()
}

func (l layout) metadata() map[string]string {
	return map[string]string{ours: strconv.Itoa(l.version)}
}

// check reports whether a stream exists, and fails if it is not ours, or if
// the layout expect, which has it, was declared and it is gone.
func (l layout) check(ctx context.Context, js jetstream.JetStream, name string, expect int) (bool, error) {
	s, err := js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && expect > 0:
		return false, fmt.Errorf("%w: %s was there, with all that it held", errMissing, name)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return false, nil
	case err != nil:
		return false, err
	case s.CachedInfo().Config.Metadata[ours] == "":
		return false, fmt.Errorf("%w: %s: give nestor an account of its own", ErrForeign, name)
	}
	return true, nil
}

func readVersion(ctx context.Context, kv jetstream.KeyValue) (version int, revision uint64, err error) {
	entry, err := kv.Get(ctx, layoutKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("reading the layout's version: %w", err)
	}
	var doc layoutDocument
	if err := json.Unmarshal(entry.Value(), &doc); err != nil || doc.Layout < 1 {
		return 0, 0, fmt.Errorf("reading the layout's version: bucket %s holds %.40q: %w", Meta, entry.Value(), ErrForeign)
	}
	return doc.Layout, entry.Revision(), nil
}

// writeVersion loses to another server that has written it since.
func (l layout) writeVersion(ctx context.Context, kv jetstream.KeyValue, revision uint64) error {
	value, err := json.Marshal(layoutDocument{Layout: l.version})
	if err != nil {
		return err
	}
	if revision == 0 {
		_, err = kv.Create(ctx, layoutKey, value)
	} else {
		_, err = kv.Update(ctx, layoutKey, value, revision)
	}
	if err == nil {
		return nil
	}
	is, _, readErr := readVersion(ctx, kv)
	switch {
	case readErr == nil && is == l.version:
		return nil
	case readErr == nil && is > l.version:
		return fmt.Errorf("layout %d was declared while this nestor declared %d: %w", is, l.version, ErrNewer)
	}
	return fmt.Errorf("writing the layout's version: %w", err)
}
