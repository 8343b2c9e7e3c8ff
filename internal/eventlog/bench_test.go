package eventlog

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// small is an event of 300 bytes.
var small = json.RawMessage(`"` + strings.Repeat("x", 298) + `"`)

// BenchmarkAppend waits for each event. The broker itself, publishing the same
// bytes, is beside it.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 50} {
		b.Run(fmt.Sprintf("log/writers=%d", writers), func(b *testing.B) {
			l := embedded(b).open(b, Options{})
			share(b, writers, func(w int, next func() bool) error {
				writer, err := l.Writer("r", name("run", w), 1)
				for err == nil && next() {
					_, err = writer.Append(context.Background(), small)
				}
				return err
			})
		})
		b.Run(fmt.Sprintf("bare/writers=%d", writers), func(b *testing.B) {
			l := embedded(b).open(b, Options{})
			data := (&chunk{writer: strings.Repeat("w", 26), events: [][]byte{small}}).encode()
			share(b, writers, func(w int, next func() bool) (err error) {
				for err == nil && next() {
					_, err = l.broker.JetStream().Publish(context.Background(), Filter{"r", name("run", w)}.subject(), data)
				}
				return err
			})
		})
	}
}

// BenchmarkWrite does not wait for each event, but for all at the end. The
// broker itself publishes chunks of 16 KiB, one after the other.
func BenchmarkWrite(b *testing.B) {
	for _, writers := range []int{1, 50} {
		b.Run(fmt.Sprintf("log/writers=%d", writers), func(b *testing.B) {
			l := embedded(b).open(b, Options{})
			share(b, writers, func(w int, next func() bool) error {
				writer, err := l.Writer("r", name("run", w), 1)
				for err == nil && next() {
					err = writer.write(context.Background(), small)
				}
				if err != nil {
					return err
				}
				return writer.Flush(context.Background())
			})
		})
		b.Run(fmt.Sprintf("bare/writers=%d", writers), func(b *testing.B) {
			l := embedded(b).open(b, Options{})
			events := make([][]byte, flushSize/len(small))
			for i := range events {
				events[i] = small
			}
			data := (&chunk{writer: strings.Repeat("w", 26), events: events}).encode()
			share(b, writers, func(w int, next func() bool) (err error) {
				for i := 0; err == nil && next(); i++ {
					if i%len(events) == 0 {
						_, err = l.broker.JetStream().Publish(context.Background(), Filter{"r", name("run", w)}.subject(), data)
					}
				}
				return err
			})
		})
	}
}

// share divides b.N among goroutines.
func share(b *testing.B, goroutines int, work func(i int, next func() bool) error) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	var done atomic.Int64
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			if err := work(i, func() bool { return done.Add(1) <= int64(b.N) }); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkReplay reads a log of 100,000 events once for each b.N; the broker
// itself reads the same messages with a consumer.
func BenchmarkReplay(b *testing.B) {
	const n = 100_000
	l := embedded(b).open(b, Options{})
	ctx := context.Background()
	w, err := l.Writer("r", "r", 1)
	if err != nil {
		b.Fatal(err)
	}
	for range n {
		if err := w.write(ctx, small); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	b.Run("log", func(b *testing.B) {
		for b.Loop() {
			seen := 0
			for _, err := range l.Read(ctx, Filter{}, 0) {
				if err != nil {
					b.Fatal(err)
				}
				seen++
			}
			if seen != n {
				b.Fatal(seen)
			}
		}
		b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("bare", func(b *testing.B) {
		stats, err := l.Stats(ctx)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			c, err := l.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
			if err != nil {
				b.Fatal(err)
			}
			messages, err := c.Messages()
			if err != nil {
				b.Fatal(err)
			}
			for range stats.Chunks {
				if _, err := messages.Next(); err != nil {
					b.Fatal(err)
				}
			}
			messages.Stop()
		}
		b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "events/s")
	})
}

// BenchmarkLag is how long an event takes from before it is appended to the last
// of its followers; with a bare consumer there is one.
func BenchmarkLag(b *testing.B) {
	for _, followers := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("log/followers=%d", followers), func(b *testing.B) {
			l := embedded(b).open(b, Options{})
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			got := make(chan struct{}, followers)
			for range followers {
				wg.Go(func() {
					for _, err := range l.Follow(ctx, Filter{Root: "r"}, 0) {
						if err != nil {
							return
						}
						got <- struct{}{}
					}
				})
			}
			once := func() {
				if _, err := l.Append(ctx, "r", "r", small); err != nil {
					b.Fatal(err)
				}
				for range followers {
					<-got
				}
			}
			once()
			for b.Loop() {
				once()
			}
		})
	}
	b.Run("bare/followers=1", func(b *testing.B) {
		l := embedded(b).open(b, Options{})
		ctx := context.Background()
		if err := l.running(ctx); err != nil {
			b.Fatal(err)
		}
		c, err := l.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
		if err != nil {
			b.Fatal(err)
		}
		messages, err := c.Messages()
		if err != nil {
			b.Fatal(err)
		}
		defer messages.Stop()
		for b.Loop() {
			if _, err := l.broker.JetStream().Publish(ctx, "event.r.r", small); err != nil {
				b.Fatal(err)
			}
			if _, err := messages.Next(jetstream.NextMaxWait(10 * time.Second)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
