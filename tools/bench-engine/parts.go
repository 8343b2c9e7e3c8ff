package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
)

const bareSubject = broker.TaskSubject + "bare.x"

// bareConsumer takes what is published on bareSubject.
func bareConsumer(ctx context.Context, b *broker.Broker) (jetstream.Consumer, error) {
	return b.JetStream().CreateOrUpdateConsumer(ctx, broker.Tasks, jetstream.ConsumerConfig{
		Durable: "bare", FilterSubject: bareSubject, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1,
	})
}

// latency measures the time from a submission to its start, one at a time, in
// turns with a message that is published and pulled. Each begins when what the one
// before it leaves to be written is: it would meet it, and not the one that left it.
func latency(ctx context.Context, dir string) error {
	const rounds = 3000
	started := make(chan time.Time, 1)
	c, err := open(ctx, dir, 2, func(context.Context, *engine.Execution) nestor.Result {
		started <- time.Now()
		return nestor.Result{Status: nestor.Success}
	})
	if err != nil {
		return err
	}
	defer c.close()
	consumer, err := bareConsumer(ctx, c.broker)
	if err != nil {
		return err
	}
	pulled, acked := make(chan time.Time, 1), make(chan error, 1)
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1))
	if err != nil {
		return err
	}
	defer messages.Stop()
	go func() {
		for {
			msg, err := messages.Next()
			if err != nil {
				return
			}
			pulled <- time.Now()
			acked <- msg.DoubleAck(ctx)
		}
	}()
	kv, err := documents(ctx, c.broker)
	if err != nil {
		return err
	}
	var ours, bare, writes []time.Duration
	for i := range rounds {
		begin := time.Now()
		id, err := c.Submit(ctx, engine.Submission{Task: nestor.Task{Input: strconv.Itoa(i)}})
		if err != nil {
			return err
		}
		ours = append(ours, (<-started).Sub(begin))
		if _, err := c.Wait(ctx, id); err != nil {
			return err
		}
		if err := c.Told(ctx, id); err != nil {
			return err
		}
		begin = time.Now()
		if _, err := c.broker.JetStream().Publish(ctx, bareSubject, []byte("x")); err != nil {
			return err
		}
		bare = append(bare, (<-pulled).Sub(begin))
		if err := <-acked; err != nil {
			return err
		}

		// What a start has to write: that it is at work.
		begin = time.Now()
		name := fmt.Sprint("bare.", i)
		if _, err := kv(name).Create(ctx, name, document); err != nil {
			return err
		}
		writes = append(writes, time.Since(begin))
	}
	row("submit → start, p50; bare: a message published and pulled", "ms", percentile(ours, 50), percentile(bare, 50))
	row("submit → start, p99", "ms", percentile(ours, 99), percentile(bare, 99))
	row("submit → start, p50; bare: the same write", "ms", percentile(ours, 50), percentile(writes, 50))
	row("submit → start, p99; bare: the same write", "ms", percentile(ours, 99), percentile(writes, 99))
	return nil
}

// documents returns a function that returns the bucket of a document.
func documents(ctx context.Context, b *broker.Broker) (func(name string) jetstream.KeyValue, error) {
	buckets := map[string]jetstream.KeyValue{}
	for _, bucket := range broker.RunsBuckets() {
		kv, err := b.JetStream().KeyValue(ctx, bucket)
		if err != nil {
			return nil, err
		}
		buckets[bucket] = kv
	}
	return func(name string) jetstream.KeyValue { return buckets[broker.RunsOf(name)] }, nil
}

// document is as large as that of a small run.
var document = []byte(strings.Repeat("x", 700))

// throughput measures how many runs get from submission to their end in a second,
// submitted by 16 at once, and how many messages are published and acknowledged: the
// medians of some series, taken in turns.
func throughput(ctx context.Context, dir string) error {
	const n, submitters, series = 3000, 16, 7
	c, err := open(ctx, dir, 16, success)
	if err != nil {
		return err
	}
	defer c.close()
	consumer, err := bareConsumer(ctx, c.broker)
	if err != nil {
		return err
	}
	acked := make(chan struct{}, n)
	consume, err := consumer.Consume(func(msg jetstream.Msg) {
		if msg.DoubleAck(ctx) == nil {
			acked <- struct{}{}
		}
	})
	if err != nil {
		return err
	}
	defer consume.Stop()
	var ours, bares, writes []float64
	for i := range series {
		rate, err := runs(ctx, c, n, submitters)
		if err != nil {
			return err
		}
		ours = append(ours, rate)
		begin := time.Now()
		if err := parallel(submitters, n, func(int) error {
			_, err := c.broker.JetStream().Publish(ctx, bareSubject, []byte("x"))
			return err
		}); err != nil {
			return err
		}
		for range n {
			<-acked
		}
		bares = append(bares, n/time.Since(begin).Seconds())
		if rate, err = sameWrites(ctx, c.broker, fmt.Sprint("same-", i, "-"), n, submitters); err != nil {
			return err
		}
		writes = append(writes, rate)
	}
	row("runs, submitted by 16; bare: messages published and acknowledged", "/s", median(ours), median(bares))
	row("runs, submitted by 16; bare: the same writes", "/s", median(ours), median(writes))
	return nil
}

func median(list []float64) float64 { return slices.Sorted(slices.Values(list))[len(list)/2] }

// runs returns how many of n runs end in a second, in the log, too.
func runs(ctx context.Context, c *core, n, submitters int) (float64, error) {
	follow, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	ended := make(chan struct{}, n)
	stats, err := c.log.Stats(ctx)
	if err != nil {
		return 0, err
	}
	following.Go(func() {
		for e, err := range c.log.Follow(follow, eventlog.Filter{}, stats.Last) {
			if err != nil {
				return
			}
			if strings.Contains(string(e.Data), `"agent_execution_complete"`) {
				ended <- struct{}{}
			}
		}
	})
	begin := time.Now()
	if err := parallel(submitters, n, func(int) error {
		_, err := c.Submit(ctx, engine.Submission{})
		return err
	}); err != nil {
		return 0, err
	}
	for range n {
		<-ended
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}

// sameWrites does per run what cannot be left out: a document made when it starts and
// changed when it ends, and a chunk of events with that. Names begin with prefix.
func sameWrites(ctx context.Context, b *broker.Broker, prefix string, n, submitters int) (float64, error) {
	js := b.JetStream()
	kv, err := documents(ctx, b)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	err = parallel(submitters, n, func(i int) error {
		name := fmt.Sprint(prefix, i)
		revision, err := kv(name).Create(ctx, name, document)
		if err != nil {
			return err
		}
		if _, err := kv(name).Update(ctx, name, document, revision); err != nil {
			return err
		}
		_, err = js.Publish(ctx, broker.EventSubject+"bare."+name, document)
		return err
	})
	return float64(n) / time.Since(begin).Seconds(), err
}

// parallel calls do n times, from so many goroutines.
func parallel(goroutines, n int, do func(i int) error) error {
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, goroutines)
	for range goroutines {
		all.Go(func() {
			for i := next.Add(1) - 1; int(i) < n; i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// said is an event, and event what the log has of it: 300 bytes.
var (
	said     = &nestor.ChatStart{Header: nestor.Header{Run: "run", Root: "root"}, Message: strings.Repeat("x", 200)}
	event, _ = nestor.EncodeEvent(said)
)

// appends measures events per second, by one and by fifty writers; the bare
// broker publishes chunks of 20.
func appends(ctx context.Context, dir string) error {
	c, err := open(ctx, dir, 0, nil)
	if err != nil {
		return err
	}
	defer c.close()
	chunk := []byte(strings.Repeat(string(event)+"\n", 20))
	for _, writers := range []int{1, 50} {
		n := 100_000
		begin := time.Now()
		if err := parallel(writers, writers, func(i int) error {
			w, err := c.log.Writer("root", fmt.Sprint("run", writers, "-", i), 1)
			for j := 0; err == nil && j < n/writers; j++ {
				var lines [][]byte
				if lines, err = eventlog.Fit(said); err == nil {
					err = w.Write(ctx, lines...)
				}
			}
			if err != nil {
				return err
			}
			return w.Flush(ctx)
		}); err != nil {
			return err
		}
		ours := float64(n) / time.Since(begin).Seconds()
		begin = time.Now()
		if err := parallel(writers, n/20, func(i int) error {
			_, err := c.broker.JetStream().Publish(ctx, fmt.Sprintf("%sbare.run%d-%d", broker.EventSubject, writers, i%writers), chunk)
			return err
		}); err != nil {
			return err
		}
		row(fmt.Sprintf("events of 300 bytes appended by %d; bare: in chunks of 20", writers), "/s", ours, float64(n)/time.Since(begin).Seconds())
	}
	return nil
}

// replay measures how fast a million events are read from the start.
func replay(ctx context.Context, dir string) error {
	const n = 1_000_000
	c, err := open(ctx, dir, 0, nil)
	if err != nil {
		return err
	}
	defer c.close()
	if err := parallel(10, 10, func(i int) error {
		w, err := c.log.Writer("root", fmt.Sprint("run", i), 1)
		for j := 0; err == nil && j < n/10; j++ {
			err = w.Write(ctx, event)
		}
		if err != nil {
			return err
		}
		return w.Flush(ctx)
	}); err != nil {
		return err
	}
	begin, seen := time.Now(), 0
	for _, err := range c.log.Read(ctx, eventlog.Filter{}, 0) {
		if err != nil {
			return err
		}
		seen++
	}
	if seen != n {
		return fmt.Errorf("replay: %d events of %d", seen, n)
	}
	ours := n / time.Since(begin).Seconds()
	stream, err := c.broker.JetStream().Stream(ctx, broker.Events)
	if err != nil {
		return err
	}
	begin = time.Now()
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for range stream.CachedInfo().State.Msgs {
		if _, err := messages.Next(); err != nil {
			return err
		}
	}
	row("1,000,000 events replayed; bare: the same chunks, not cut into events", "/s", ours, n/time.Since(begin).Seconds())
	return nil
}

// lag measures how late 100 followers see an event.
func lag(ctx context.Context, dir string) error {
	const followers, n = 100, 200
	c, err := open(ctx, dir, 0, nil)
	if err != nil {
		return err
	}
	defer c.close()
	follow, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	seen := make(chan time.Time, followers*n)
	for range followers {
		all.Go(func() {
			for _, err := range c.log.Follow(follow, eventlog.Filter{Root: "root"}, 0) {
				if err != nil {
					return
				}
				seen <- time.Now()
			}
		})
	}
	ours, err := spread(n, followers, seen, func() error {
		_, err := c.log.Append(ctx, "root", "run", event)
		return err
	})
	if err != nil {
		return err
	}
	stop()
	all.Wait()
	stream, err := c.broker.JetStream().Stream(ctx, broker.Events)
	if err != nil {
		return err
	}
	for range followers {
		consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{broker.EventSubject + "bare.>"}})
		if err != nil {
			return err
		}
		consuming, err := consumer.Consume(func(jetstream.Msg) { seen <- time.Now() })
		if err != nil {
			return err
		}
		defer consuming.Stop()
	}
	bare, err := spread(n, followers, seen, func() error {
		_, err := c.broker.JetStream().Publish(ctx, broker.EventSubject+"bare.run", event)
		return err
	})
	if err != nil {
		return err
	}
	row("event → 100 followers, p50; bare: 100 consumers", "ms", percentile(ours, 50), percentile(bare, 50))
	row("event → 100 followers, p99", "ms", percentile(ours, 99), percentile(bare, 99))
	return nil
}

// spread publishes n times and waits until all followers have seen each.
func spread(n, followers int, seen <-chan time.Time, publish func() error) (all []time.Duration, err error) {
	for i := range n {
		begin := time.Now()
		if err := publish(); err != nil {
			return nil, err
		}
		for range followers {
			if at := <-seen; i > 0 { // the first finds followers that are only starting
				all = append(all, at.Sub(begin))
			}
		}
	}
	return all, nil
}

// queued measures how long the next task takes to be started, with more and more
// of them in the queue.
func queued(ctx context.Context, dir string, most int) error {
	fmt.Println("| queued | from one start to the next, one slot: p50 | p99 |")
	fmt.Println("|---|---|---|")
	for n := 100; n <= most; n *= 100 {
		if err := fill(ctx, filepath.Join(dir, fmt.Sprint("queued", n)), n); err != nil {
			return err
		}
	}
	fmt.Println()
	return nil
}

func fill(ctx context.Context, dir string, n int) error {
	const real = 100
	c, err := open(ctx, dir, 0, nil)
	if err != nil {
		return err
	}
	for range real {
		if _, err := c.Submit(ctx, engine.Submission{}); err != nil {
			return err
		}
	}
	kv, err := documents(ctx, c.broker)
	if err != nil {
		return err
	}
	// The rest only has to be there: a document and a message each.
	if err := parallel(256, n-real, func(int) error {
		id := nestor.NewID(time.Now())
		name := "run." + string(id)
		if _, err := kv(name).Create(ctx, name, []byte(`{"run":{"state":"queued"}}`)); err != nil {
			return err
		}
		_, err := c.broker.JetStream().Publish(ctx, broker.TaskSubject+"run.~.normal", fmt.Appendf(nil, `{"run":%q,"attempt":1}`, id))
		return err
	}); err != nil {
		return err
	}
	c.close()
	var starts []time.Time
	done := make(chan struct{})
	c, err = open(ctx, dir, 1, func(context.Context, *engine.Execution) nestor.Result {
		if starts = append(starts, time.Now()); len(starts) == real { // one slot: one at a time
			close(done)
		}
		return nestor.Result{Status: nestor.Success}
	})
	if err != nil {
		return err
	}
	defer c.close()
	<-done
	var gaps []time.Duration
	for i := 1; i < real; i++ {
		gaps = append(gaps, starts[i].Sub(starts[i-1]))
	}
	fmt.Printf("| %d | %.3g ms | %.3g ms |\n", n, percentile(gaps, 50), percentile(gaps, 99))
	return nil
}

// footprint measures how long an engine takes to be ready, and what it holds when
// it has nothing to do.
func footprint(ctx context.Context, dir string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	var ready []time.Duration
	memory := 0
	for i := range 10 {
		cmd := exec.CommandContext(ctx, exe)
		cmd.Env = append(os.Environ(), roleVariable+"=idle", "DIR="+filepath.Join(dir, fmt.Sprint("idle", i%2)))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return err
		}
		var ns, kb int
		if _, err := fmt.Sscan(string(out), &ns, &kb); err != nil {
			return err
		}
		ready = append(ready, time.Duration(ns))
		memory = max(memory, kb)
	}
	fmt.Printf("Ready in %.0f ms (median of 10 starts, the slowest %.0f ms); idle it holds %d MiB.\n", percentile(ready, 50), percentile(ready, 99), memory>>10)
	return nil
}

// idle opens an engine and prints how many nanoseconds that took, and what it
// holds after two seconds, in KB.
func idle(ctx context.Context) error {
	begin := time.Now()
	c, err := open(ctx, os.Getenv("DIR"), 5, success)
	if err != nil {
		return err
	}
	id, err := c.Submit(ctx, engine.Submission{})
	if err != nil {
		return err
	}
	if _, err := c.Wait(ctx, id); err != nil {
		return err
	}
	ready := time.Since(begin)
	time.Sleep(2 * time.Second)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			fmt.Println(ready.Nanoseconds(), strings.Fields(rest)[0])
		}
	}
	c.close()
	return nil
}
