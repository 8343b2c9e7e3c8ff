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
	"golang.org/x/sync/errgroup"
)

// The streams and buckets, and the subjects of their messages. Whoever uses
// one takes its name from here.
const (
	// Orch is the work queue of inputs to the plan, on subjects orch.>.
	Orch        = "ORCH"
	OrchSubject = "orch."

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

	// Results is the bucket of what tasks gave, by a hash of all that went into
	// them, for those who would do them again. They are kept for a month.
	Results = "RESULTS"

	// Meta is the bucket that says which layout this is.
	Meta = "META"
)

// MaxDocument bounds a document of a run, and a message in any stream.
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
	first   map[string]uint64 // sequence with which a stream begins that is made; 1 if it has none

	// Every change of what is declared is a new version. steps[i] makes layout
	// i+2 of layout i+1; it may be cut off and run again, and by two servers at
	// once. It is nil where declaring the streams anew is enough.
	steps []func(context.Context, jetstream.JetStream) error
}

// None is AllowDirect, so that a read is answered by the leader, with what was
// written last, and not by a replica that may lag.
var current = layout{
	version: 6,
	// 2 has Results, in 3 documents, and events, can be stored together, in 4 documents have short paths, in 5
	// buckets remember no ids, in 6 documents have two buckets
	steps: []func(context.Context, jetstream.JetStream) error{nil, nil, nil, nil, spread},
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
			Duplicates: 10 * time.Minute,
		},
		{
			Name:      Tasks,
			Subjects:  []string{TaskSubject + ">", LaterSubject + ">"},
			Retention: jetstream.WorkQueuePolicy,
			// The same, for the outbox of a run's document.
			Duplicates:        10 * time.Minute,
			AllowMsgSchedules: true,
		},
		together(jetstream.StreamConfig{
			Name:       Events,
			Subjects:   []string{EventSubject + "*.*"},
			Retention:  jetstream.LimitsPolicy,
			Duplicates: noDuplicates, // chunks expect a sequence
		}),
		together(bucket(runs[0])),
		together(bucket(runs[1])),
		aged(bucket(Results), 30*24*time.Hour),
		{
			Name:        "OBJ_" + Blobs,
			Subjects:    []string{"$O." + Blobs + ".C.>", "$O." + Blobs + ".M.>"},
			Discard:     jetstream.DiscardNew,
			AllowRollup: true,
			Duplicates:  noDuplicates, // they have names of their own
		},
	},
}

// noDuplicates is how long ids are remembered where none is given, for what is stored
// there is kept from being stored twice by the sequence that it expects, which is exact.
// It is the least that the server takes: at every start it reads all that was stored
// within that time.
const noDuplicates = 100 * time.Millisecond

// bucket is the stream of a key-value bucket that keeps the last value of each
// key, as the client would make it but for AllowDirect: with that any replica
// answers, also one that has not seen yet what was just written.
func bucket(name string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              BucketStream(name),
		Subjects:          []string{bucketSubject(name) + ">"},
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardNew,
		AllowRollup:       true,
		DenyDelete:        true,
		Duplicates:        noDuplicates,
	}
}

// together returns the stream with batches of messages that are stored together, and
// synced once.
func together(s jetstream.StreamConfig) jetstream.StreamConfig {
	s.AllowAtomicPublish = true
	return s
}

// aged returns the stream with values that go when they are so old.
func aged(s jetstream.StreamConfig, age time.Duration) jetstream.StreamConfig {
	s.MaxAge = age
	return s
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
			return fmt.Errorf("%w: see that its servers run, and that there are as many as replicas", last)
		}
	}
}

// declare makes or changes what l lists, after the steps from an older
// version. The version is written last, so that where it stands all is there.
func (l layout) declare(ctx context.Context, js jetstream.JetStream, o Options) error {
	meta := bucket(Meta)
	exists, err := l.check(ctx, js, meta.Name, 0)
	if err == nil && exists == nil {
		err = l.stream(ctx, js, meta, o, 0)
	}
	if err != nil {
		return fmt.Errorf("bucket %s: %w", Meta, err)
	}
	kv, err := js.KeyValue(ctx, Meta)
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
		step := l.steps[v-1]
		if step == nil {
			continue
		}
		if err := step(ctx, js); err != nil {
			return fmt.Errorf("migrating from layout %d to %d: %w", v, v+1, err)
		}
	}

	// A stream that a migration brings is not missing.
	expect := 0
	if was == l.version && !o.AcceptDamage {
		expect = was
	}
	var g errgroup.Group
	for _, config := range l.all() {
		g.Go(func() error {
			if err := l.stream(ctx, js, config, o, expect); err != nil {
				return fmt.Errorf("stream %s: %w", config.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil || was == l.version {
		return err
	}
	return l.writeVersion(ctx, kv, revision)
}

// stands tells whether they are the streams of this version.
func (l layout) stands(found streams, o Options) bool {
	version := strconv.Itoa(l.version)
	for _, config := range l.all() {
		is := found[config.Name].Config
		if is == nil || is.Metadata[ours] != version || o.Replicas != 0 && o.Replicas != is.Replicas {
			return false
		}
	}
	return true
}

// all lists the streams with that of the version.
func (l layout) all() []jetstream.StreamConfig {
	return append([]jetstream.StreamConfig{bucket(Meta)}, l.streams...)
}

// stream makes or changes one, unless it is as this version declares it. Who did
// not ask for a number of replicas leaves it as it is.
func (l layout) stream(ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, o Options, expect int) error {
	is, err := l.check(ctx, js, config.Name, expect)
	if err != nil {
		return err
	}
	config.Replicas = o.Replicas
	version := strconv.Itoa(l.version)
	switch {
	case is != nil && (o.Replicas == 0 || o.Replicas == is.Replicas) && is.Metadata[ours] == version:
		return nil
	case o.Replicas != 0:
	case is != nil:
		config.Replicas = is.Replicas
	case o.URL != "" || o.Listen.Cluster != "":
		config.Replicas = 3
	default:
		config.Replicas = 1
	}
	if is == nil {
		config.FirstSeq = l.first[config.Name]
	} else {
		config.FirstSeq = is.FirstSeq
	}
	config.Storage, config.MaxMsgSize = jetstream.FileStorage, MaxDocument
	config.Metadata = map[string]string{ours: version}
	_, err = js.CreateOrUpdateStream(ctx, config)
	return err
}

// check returns the configuration of a stream, nil if it does not exist. It
// fails if it is not ours, or if the layout expect, which has it, was declared
// and it is gone.
func (l layout) check(ctx context.Context, js jetstream.JetStream, name string, expect int) (*jetstream.StreamConfig, error) {
	s, err := js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && expect > 0:
		return nil, fmt.Errorf("%w: %s was there, with all that it held", errMissing, name)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	config := s.CachedInfo().Config
	if config.Metadata[ours] == "" {
		return nil, fmt.Errorf("%w: %s: give nestor an account of its own", ErrForeign, name)
	}
	return &config, nil
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
