package pool

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dfaf701a/nestor/claude"
)

// fakes starts CLIs that are goroutines of the test.
type fakes struct {
	takes    time.Duration // a start
	ends     time.Duration // how long a CLI takes to end
	stubborn bool          // starts succeed although their context has ended

	mu      sync.Mutex
	fail    error // of starts
	started []*fakeCLI
	most    int // that lived at once
	tries   []time.Time
	of      map[*claude.Warmed]*fakeCLI
}

func (f *fakes) start(ctx context.Context, opts claude.Options) (*claude.Warmed, error) {
	cli := newFakeCLI(f.ends)
	if f.stubborn {
		ctx = context.WithoutCancel(ctx)
	}
	f.mu.Lock()
	f.tries = append(f.tries, time.Now())
	err := f.fail
	if err == nil {
		f.started = append(f.started, cli)
		f.most = max(f.most, f.live())
	}
	f.mu.Unlock()
	if err != nil {
		cli.Kill()
		return nil, err
	}
	select {
	case <-time.After(f.takes):
	case <-ctx.Done():
	}
	opts.Spawn = func(context.Context, claude.Command) (claude.Process, error) { return cli, nil }
	h, err := claude.Warm(ctx, opts)
	if err != nil {
		cli.Kill()
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[*claude.Warmed]*fakeCLI{}
	}
	f.of[h] = cli
	return h, nil
}

// live returns how many were started and have not ended. The caller holds mu.
func (f *fakes) live() (n int) {
	for _, cli := range f.started {
		if !cli.over() {
			n++
		}
	}
	return n
}

// alive returns how many live, and how many lived at once.
func (f *fakes) alive() (now, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live(), f.most
}

// nth returns the nth that was started.
func (f *fakes) nth(i int) *fakeCLI {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.started[i]
}

// tried returns when starts were tried.
func (f *fakes) tried() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.tries)
}

// setFail makes starts fail with err, or succeed.
func (f *fakes) setFail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// cli returns what is behind a handle.
func (f *fakes) cli(h *claude.Warmed) *fakeCLI {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of[h]
}

// fakeCLI answers every request and ends with its input.
type fakeCLI struct {
	in     *io.PipeReader
	stdin  *io.PipeWriter
	out    *io.PipeWriter
	stdout *io.PipeReader
	stderr *io.PipeReader
	errOut *io.PipeWriter
	ended  chan struct{}
	once   sync.Once
}

func newFakeCLI(ends time.Duration) *fakeCLI {
	c := &fakeCLI{ended: make(chan struct{})}
	c.in, c.stdin = io.Pipe()
	c.stdout, c.out = io.Pipe()
	c.stderr, c.errOut = io.Pipe()
	go func() {
		defer c.Kill()
		for r := bufio.NewReader(c.in); ; {
			line, err := r.ReadBytes('\n')
			if err != nil {
				time.Sleep(ends) // of the bubble
				return
			}
			var m struct {
				ID string `json:"request_id"`
			}
			json.Unmarshal(line, &m)
			if m.ID != "" {
				fmt.Fprintf(c.out, `{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{}}}`+"\n", m.ID)
			}
		}
	}()
	return c
}

func (c *fakeCLI) Stdin() io.WriteCloser { return c.stdin }
func (c *fakeCLI) Stdout() io.ReadCloser { return c.stdout }
func (c *fakeCLI) Stderr() io.ReadCloser { return c.stderr }
func (c *fakeCLI) Terminate() error      { return c.Kill() }

func (c *fakeCLI) Wait() claude.Exit {
	<-c.ended
	return claude.Exit{}
}

func (c *fakeCLI) Kill() error {
	c.once.Do(func() {
		close(c.ended)
		c.in.Close()
		c.out.Close()
		c.errOut.Close()
	})
	return nil
}

func (c *fakeCLI) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// logged keeps the messages of a log, from a level on.
type logged struct {
	slog.Handler
	level slog.Level
	add   func(slog.Record)
}

func (l logged) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level }

func (l logged) Handle(_ context.Context, r slog.Record) error {
	l.add(r)
	return nil
}

// running is a Warm in a bubble, that runs until stop.
type running struct {
	*Warm
	cli  *fakes
	stop func()
}

// bubble runs test with a Warm of fakes that take a second to start. Nothing
// may be left when it returns.
func bubble(t *testing.T, opts WarmOptions, test func(*testing.T, running)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cli := &fakes{takes: time.Second}
		opts.Start = cli.start
		w := NewWarm(opts)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		stop := sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		defer stop()
		test(t, running{Warm: w, cli: cli, stop: stop})
	})
}

// keep is Keep for options that are fine.
func (r running) keep(t *testing.T, opts claude.Options, n int) {
	t.Helper()
	if err := r.Keep(opts, n); err != nil {
		t.Fatal(err)
	}
}

// hit is Take where there must be one. It is closed at once.
func (r running) hit(t *testing.T, opts claude.Options) *claude.Warmed {
	t.Helper()
	h, ok := r.Take(t.Context(), opts)
	if !ok {
		t.Fatalf("there was none to take: %+v", r.Stats())
	}
	h.Close()
	return h
}

// miss is Take where there must be none.
func (r running) miss(t *testing.T, opts claude.Options) {
	t.Helper()
	if h, ok := r.Take(t.Context(), opts); ok {
		h.Close()
		t.Fatal("there was one to take")
	}
}

// pass lets time pass, and what is due then happen.
func pass(d time.Duration) {
	time.Sleep(d) // of the bubble
	synctest.Wait()
}
