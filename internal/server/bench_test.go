package server_test

import (
	"iter"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/server"
)

// BenchmarkSubmit is a submission over the socket, of which the backend takes
// next to nothing.
func BenchmarkSubmit(b *testing.B) {
	c, _ := serve(b, newDaemon(), socket(b), server.Options{})
	for b.Loop() {
		if _, err := c.Submit(b.Context(), api.Submission{Task: nestor.Task{Input: "hello"}}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFollow is an event from the backend to a follower that waits for
// it.
func BenchmarkFollow(b *testing.B) {
	d := newDaemon()
	id := d.add(1)
	c, _ := serve(b, d, socket(b), server.Options{})
	next, stop := iter.Pull2(c.Events(b.Context(), id, api.EventsQuery{Follow: true}))
	defer stop()
	for b.Loop() {
		if _, err, ok := next(); err != nil || !ok {
			b.Fatal(err)
		}
		d.say(id, "hello")
	}
}

// BenchmarkFirstEvent is a follower that begins, up to its first event.
func BenchmarkFirstEvent(b *testing.B) {
	d := newDaemon()
	id := d.add(1)
	d.end(id)
	c, _ := serve(b, d, socket(b), server.Options{})
	for b.Loop() {
		for _, err := range c.Events(b.Context(), id, api.EventsQuery{Follow: true}) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkBacklog is a thousand events that are there already.
func BenchmarkBacklog(b *testing.B) {
	d := newDaemon()
	id := d.add(1000)
	d.end(id)
	c, _ := serve(b, d, socket(b), server.Options{})
	for b.Loop() {
		for _, err := range c.Events(b.Context(), id, api.EventsQuery{}) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
