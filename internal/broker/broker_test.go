package broker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestEverythingIsSyncedAlways(t *testing.T) {
	dir := t.TempDir()
	for _, o := range []Options{
		{Dir: dir},
		{Dir: dir}, // again
		{Dir: t.TempDir(), Listen: Listen{Port: -1, Token: "secret"}},
	} {
		b := mustOpen(t, o)
		if config := b.srv.JetStreamConfig(); !config.SyncAlways {
			t.Errorf("%+v: the server does not sync on every write", o)
		}
		for s := range b.js.ListStreams(soon(t)).Info() {
			if s.Config.Storage != jetstream.FileStorage || s.Config.PersistMode == jetstream.AsyncPersistMode {
				t.Errorf("stream %s is stored as %v, %v", s.Config.Name, s.Config.Storage, s.Config.PersistMode)
			}
		}
		mustClose(t, b)
	}
	clustered, err := serverOptions(Options{Dir: "x", Listen: Listen{Port: 1, Token: "t", Cluster: "c", Name: "n", ClusterPort: 2}})
	if err != nil || !clustered.SyncAlways {
		t.Errorf("a server of a cluster does not sync on every write (%v)", err)
	}
}

func TestNoPortIsOpened(t *testing.T) {
	b := mustOpen(t, Options{Dir: t.TempDir()})
	if addr := b.Addr(); addr != "" {
		t.Errorf("it listens on %s", addr)
	}
}

func TestWhatIsThereSurvivesReopening(t *testing.T) {
	dir := t.TempDir()
	b := mustOpen(t, Options{Dir: dir})
	last := publish(t, b, "event.a.b", 10)
	kv, err := b.JetStream().KeyValue(soon(t), runs[0])
	if err != nil {
		t.Fatal(err)
	}
	revision, err := kv.Create(soon(t), "run", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, b)
	b = mustOpen(t, Options{Dir: dir})
	if got := publish(t, b, "event.a.b", 1); got != last+1 {
		t.Errorf("sequence %d after %d", got, last)
	}
	kv, err = b.JetStream().KeyValue(soon(t), runs[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Update(soon(t), "run", []byte("[]"), revision); err != nil {
		t.Errorf("compare-and-set with the revision from before: %v", err)
	}
}

// Streams that were left in order by this version are used as they are. After a kill
// they are declared again: whoever was killed may have been about to.
func TestStreamsInOrderAreNotDeclaredAgain(t *testing.T) {
	for _, killed := range []bool{false, true} {
		b := mustOpen(t, Options{Dir: filled(t, killed)})
		info, err := b.srv.Jsz(nil)
		if err != nil {
			t.Fatal(err)
		}
		if asked := info.API.Total > 0; asked != killed {
			t.Errorf("killed %t: %d requests", killed, info.API.Total)
		}
		if last := publish(t, b, "event.a.b", 1); last <= 30 {
			t.Errorf("killed %t: sequence %d after 30 messages", killed, last)
		}
	}
}

func TestAcknowledgedSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	var last uint64
	for round := range 3 {
		c := start(t, "write", dir)
		for range 50 * (round + 1) {
			line := c.line()
			if line == "" {
				text, _ := c.wait()
				t.Fatal(text)
			}
			last, _ = strconv.ParseUint(line, 10, 64)
		}
		c.kill()
		for c.out.Scan() { // acknowledged while it was being killed
			last, _ = strconv.ParseUint(c.out.Text(), 10, 64)
		}
		c.wait()
	}
	b := mustOpen(t, Options{Dir: dir})
	s, err := b.JetStream().Stream(soon(t), Events)
	if err != nil {
		t.Fatal(err)
	}
	state := s.CachedInfo().State
	if state.FirstSeq != 1 || state.LastSeq < last || state.Msgs != state.LastSeq {
		t.Errorf("%d messages from %d to %d; 1 to %d were acknowledged", state.Msgs, state.FirstSeq, state.LastSeq, last)
	}
}

func TestFolderHasOneOwner(t *testing.T) {
	dir := t.TempDir()
	c := start(t, "hold", dir)
	if c.line() != "open" {
		t.Fatal(c.wait())
	}
	_, err := Open(soon(t), Options{Dir: dir})
	var locked *LockedError
	if !errors.As(err, &locked) || !errors.Is(err, ErrLocked) || locked.PID != c.cmd.Process.Pid || !strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v; the owner is %d", err, c.cmd.Process.Pid)
	}
	c.kill()
	c.wait()
	mustClose(t, mustOpen(t, Options{Dir: dir}))
}

func TestTwoThatStartAtOnce(t *testing.T) {
	dir := t.TempDir()
	first, second := start(t, "hold", dir), start(t, "hold", dir)
	var wg sync.WaitGroup
	var lines [2]string
	for i, c := range []*child{first, second} {
		wg.Go(func() { lines[i] = c.line() })
	}
	// One says that it is open and stays so, the other ends.
	for _, c := range []*child{first, second} {
		defer c.stdin.Close()
	}
	wg.Wait()
	loser := second
	if lines[0] == "" {
		loser = first
	}
	if lines[0]+lines[1] != "open" {
		t.Fatalf("they said %q", lines)
	}
	if text, failed := loser.wait(); !failed || !strings.Contains(text, "has it open") || !strings.Contains(text, dir) {
		t.Errorf("the second said %q", text)
	}
}

func TestNewerLayoutIsRefused(t *testing.T) {
	dir := t.TempDir()
	newer := current
	newer.version = current.version + 1
	b, err := open(soon(t), Options{Dir: dir}, newer)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, b)
	_, err = Open(soon(t), Options{Dir: dir})
	if !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), fmt.Sprintf("layout %d; this one knows %d", newer.version, current.version)) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v", err)
	}
	// It was not changed.
	if b, err = open(soon(t), Options{Dir: dir}, newer); err != nil {
		t.Fatal(err)
	}
	mustClose(t, b)
}

func TestOlderLayoutIsMigrated(t *testing.T) {
	dir := t.TempDir()
	first := current
	first.version, first.steps = 1, nil
	b, err := open(soon(t), Options{Dir: dir}, first)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, "event.a.b", 3)
	mustClose(t, b)

	var ran []int
	third := current
	third.version = 3
	third.streams = append(third.streams, jetstream.StreamConfig{Name: "NEW", Subjects: []string{"new.>"}})
	fail := true
	third.steps = []func(context.Context, jetstream.JetStream) error{
		func(context.Context, jetstream.JetStream) error { ran = append(ran, 2); return nil },
		func(context.Context, jetstream.JetStream) error {
			ran = append(ran, 3)
			if fail {
				fail = false
				return errors.New("cut off")
			}
			return nil
		},
	}
	if _, err := open(soon(t), Options{Dir: dir}, third); err == nil || !strings.Contains(err.Error(), "migrating from layout 2 to 3: cut off") {
		t.Fatalf("got %v", err)
	}
	for range 2 {
		b, err := open(soon(t), Options{Dir: dir}, third)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := b.JetStream().Stream(soon(t), Events); err != nil || s.CachedInfo().State.Msgs != 3 {
			t.Errorf("the log after migration: %v", err)
		}
		mustClose(t, b)
	}
	if got := fmt.Sprint(ran); got != "[2 3 2 3]" {
		t.Errorf("steps %s", got)
	}
}

// Layout 4 had the server read all documents of the last two minutes at a start.
func TestBucketsOfLayout4RememberNoIDs(t *testing.T) {
	dir := t.TempDir()
	fourth := current
	fourth.version, fourth.steps, fourth.streams = 4, current.steps[:3], slices.Clone(current.streams)
	for i := range fourth.streams {
		if fourth.streams[i].Duplicates == noDuplicates && fourth.streams[i].Name != Events {
			fourth.streams[i].Duplicates = 0 // as the server chooses
		}
	}
	window := func(b *Broker) time.Duration {
		t.Helper()
		s, err := b.JetStream().Stream(soon(t), BucketStream(runs[0]))
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().Config.Duplicates
	}
	b, err := open(soon(t), Options{Dir: dir}, fourth)
	if err != nil {
		t.Fatal(err)
	}
	if window(b) < time.Minute {
		t.Errorf("the server remembers ids for %v by itself: the layout need not say it", window(b))
	}
	publish(t, b, bucketSubject(runs[0])+"b", 1)
	mustClose(t, b)

	b = mustOpen(t, Options{Dir: dir})
	if got := window(b); got != noDuplicates {
		t.Errorf("ids of documents are remembered for %v after the migration", got)
	}
	kv, err := b.JetStream().KeyValue(soon(t), runs[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Get(soon(t), "b"); err != nil {
		t.Errorf("the document after the migration: %v", err)
	}
}

func TestForeignStreamIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	b := mustOpen(t, Options{Dir: dir})
	if err := b.JetStream().DeleteStream(soon(t), Events); err != nil {
		t.Fatal(err)
	}
	if _, err := b.JetStream().CreateStream(soon(t), jetstream.StreamConfig{Name: Events, Subjects: []string{"theirs"}}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, b)
	if _, err := Open(soon(t), Options{Dir: dir}); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "account of its own") {
		t.Fatalf("got %v", err)
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		o    Options
		want string
	}{
		{Options{}, "neither a folder nor a URL"},
		{Options{Dir: dir, URL: "nats://x"}, "one or the other"},
		{Options{Dir: dir, Replicas: 6}, "6 replicas"},
		{Options{Dir: dir, Listen: Listen{Port: -1}}, "would let everybody in"},
		{Options{Dir: dir, Listen: Listen{Port: -1, Token: "t", Cluster: "c"}}, "needs a name"},
		{Options{Dir: dir, Listen: Listen{Port: -1, Token: "t", Routes: []string{"x:1"}}}, "without the name of a cluster"},
		{Options{Dir: dir, Listen: Listen{Token: "t"}}, "no port"},
		{Options{URL: "nats://user:secret@127.0.0.1:1"}, "nats://user:xxxxx@127.0.0.1:1"},
		{Options{URL: "nats://127.0.0.1:1", Credentials: filepath.Join(dir, "none")}, "none"},
	} {
		b, err := Open(soon(t), test.o)
		if err == nil {
			b.Close()
			t.Errorf("%+v: no error", test.o)
		} else if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: got %q, want %q in it", test.o, err, test.want)
		}
	}
}

func TestFolderThatIsAFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "broker")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(soon(t), Options{Dir: name}); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("got %v", err)
	}
}

func TestOpenGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	lonely := Options{Dir: t.TempDir(), Listen: Listen{Port: -1, Token: "t", Cluster: "c", Name: "a", ClusterPort: freePort(t), Routes: []string{"127.0.0.1:" + strconv.Itoa(freePort(t))}}}
	if _, err := Open(ctx, lonely); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "start the other servers") {
		t.Errorf("got %v", err)
	}
}

func TestScheduledMessageComesInItsTime(t *testing.T) {
	b := mustOpen(t, Options{Dir: t.TempDir()})
	ctx := soon(t)
	at := time.Now().Add(time.Second)
	if _, err := b.JetStream().PublishMsg(ctx, Later("later.run.1", "task.pool", at, []byte("wake up"))); err != nil {
		t.Fatal(err)
	}
	c, err := b.JetStream().CreateConsumer(ctx, Tasks, jetstream.ConsumerConfig{FilterSubject: "task.pool"})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := c.Next(jetstream.FetchMaxWait(20 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if string(msg.Data()) != "wake up" || time.Now().Before(at) {
		t.Errorf("got %q at %v, wanted at %v", msg.Data(), time.Now(), at)
	}
}

// What the layout says of the window, so that a change of the server is noticed.
func TestDuplicatesAreKnownWhileTheServerRuns(t *testing.T) {
	dir := t.TempDir()
	b := mustOpen(t, Options{Dir: dir})
	send := func() *jetstream.PubAck {
		t.Helper()
		ack, err := b.JetStream().Publish(soon(t), "orch.x", nil, jetstream.WithMsgID("one"))
		if err != nil {
			t.Fatal(err)
		}
		return ack
	}
	take := func() {
		t.Helper()
		c, err := b.JetStream().CreateOrUpdateConsumer(soon(t), Orch, jetstream.ConsumerConfig{Durable: "plan"})
		if err != nil {
			t.Fatal(err)
		}
		msg, err := c.Next(jetstream.FetchMaxWait(20 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := msg.DoubleAck(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	send()
	if !send().Duplicate {
		t.Error("a second publish with the same id was stored")
	}
	mustClose(t, b)
	b = mustOpen(t, Options{Dir: dir})
	if !send().Duplicate {
		t.Error("a publish with the same id was stored after a restart, though the first is still there")
	}
	take()
	if !send().Duplicate {
		t.Error("a publish with the same id was stored after the first was handled")
	}
	mustClose(t, b)
	b = mustOpen(t, Options{Dir: dir})
	if send().Duplicate {
		t.Error("the server now remembers ids of handled messages over a restart: say so in the layout")
	}
}

// freePort returns a port that nobody listens on. It is none of those that who dials
// is given: a server that starts a moment later would find it taken.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 20_000+rand.IntN(12_000)))
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	t.Fatal("no port is free")
	return 0
}

func TestThreeServersAreOneCluster(t *testing.T) {
	var ports, clientPorts [3]int
	var routes []string
	for i := range ports {
		ports[i], clientPorts[i] = freePort(t), freePort(t)
		routes = append(routes, net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[i])))
	}
	var wg sync.WaitGroup
	var brokers [3]*Broker
	var errs [3]error
	ctx := soon(t)
	for i := range brokers {
		o := Options{Dir: t.TempDir(), Listen: Listen{Port: clientPorts[i], Token: "secret", Cluster: "nest", Name: fmt.Sprint("server-", i), ClusterPort: ports[i], Routes: routes}}
		wg.Go(func() { brokers[i], errs[i] = Open(ctx, o) })
	}
	wg.Wait()
	for i, b := range brokers {
		if errs[i] != nil {
			t.Error(errs[i])
			continue
		}
		defer b.Close()
	}
	if t.Failed() {
		return
	}
	client := mustOpen(t, Options{URL: "nats://nestor:secret@" + brokers[0].Addr() + ",nats://nestor:secret@" + brokers[1].Addr()})
	publish(t, client, "event.a.b", 5)
	s, err := client.JetStream().Stream(ctx, Events)
	if err != nil {
		t.Fatal(err)
	}
	if info := s.CachedInfo(); info.Config.Replicas != 3 || info.State.Msgs != 5 {
		t.Errorf("%d replicas, %d messages", info.Config.Replicas, info.State.Msgs)
	}
	if _, err := Open(ctx, Options{URL: "nats://nestor:wrong@" + brokers[0].Addr()}); err == nil {
		t.Error("a client with another token was let in")
	}
}

func TestDiallingLeavesReplicasAlone(t *testing.T) {
	b := mustOpen(t, Options{Dir: t.TempDir(), Listen: Listen{Port: -1, Token: "secret"}})
	client := mustOpen(t, Options{URL: "nats://nestor:secret@" + b.Addr()})
	s, err := client.JetStream().Stream(soon(t), Events)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().Config.Replicas; n != 1 {
		t.Errorf("%d replicas", n)
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, messages := range []int{0, 10_000} {
		b.Run(fmt.Sprint("messages=", messages), func(b *testing.B) {
			dir := b.TempDir()
			br := mustOpen(b, Options{Dir: dir})
			publish(b, br, "event.a.b", messages)
			mustClose(b, br)
			for b.Loop() {
				br, err := Open(context.Background(), Options{Dir: dir})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				mustClose(b, br)
				b.StartTimer()
			}
		})
	}
}

func TestScheduleTakesThePlaceOfAnother(t *testing.T) {
	b := mustOpen(t, Options{Dir: t.TempDir()})
	ctx := soon(t)
	for i := range 2 {
		if _, err := b.JetStream().PublishMsg(ctx, Later("later.run.1", "task.pool", time.Now().Add(time.Hour), []byte{byte(i)})); err != nil {
			t.Fatal(err)
		}
	}
	s, err := b.JetStream().Stream(ctx, Tasks)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d schedules are kept", n)
	}
}
