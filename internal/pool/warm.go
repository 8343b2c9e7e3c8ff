// Package pool keeps Claude CLIs ready.
//
// [Warm] holds CLIs that are started and initialized ahead of their first
// prompt. Its owner says with [Warm.Keep] which options are worth it, and takes
// a handle with [Warm.Take] where it would start a CLI:
//
//	h, ok := warm.Take(ctx, opts)
//	if !ok {
//		h, err = claude.Warm(ctx, opts)
//	}
//
// If it knows a moment before, it says so with [Warm.Expect].
//
// A handle is good for a prompt when it was started with the same options, in
// the same directory and environment, from the same file as a CLI that would be
// started now. What else the CLI reads when it starts, such as settings and
// credentials, may be as old as the handle. Functions and servers of this process
// are those of who takes it.
package pool

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dfaf701a/nestor/claude"
)

// WarmOptions bound what is held. The zero value works.
type WarmOptions struct {
	Max    int           // processes that are held at once, starting and ending ones included; zero means 2
	MaxAge time.Duration // of a handle; zero means 10 minutes
	// Learn is how long options are kept that were asked for repeatedly, from the
	// last time on: one for each time but the first; and those that were expected.
	// Zero keeps what Keep says alone.
	Learn time.Duration
	// Pause is how long nothing that is not expected is started after a handle was
	// taken, or asked for; zero means half a second. On two cores a start at the same
	// time doubles the time to its first text, which is 0.1 to 0.2 s without (2.1.325).
	Pause     time.Duration
	MaxMemory int64 // bytes of all idle handles together, with what they started; zero means 1 GiB; bounded on Linux only

	// Start starts a CLI, which lives until it is closed or ctx ends. Nil means
	// claude.Warm.
	Start func(ctx context.Context, opts claude.Options) (*claude.Warmed, error)
	Log   *slog.Logger // nil discards
}

// Stats are what a Warm has done since it was made.
type Stats struct {
	Hits      int           // handles that were taken
	Misses    int           // times that there was none to take
	Discarded int           // handles that ended without being taken
	Idle      int           // handles there are now
	Saved     time.Duration // what the starts of the taken handles took together
}

const (
	checkEvery = 5 * time.Second // how often handles are looked at
	maxBackoff = time.Minute     // between starts that fail
)

// Warm keeps CLIs warm while Run runs. Its methods may be called from any
// goroutine.
type Warm struct {
	opts   WarmOptions
	memory func(*claude.Warmed) int64 // bytes that a handle holds
	wake   chan struct{}              // holds a token when Run has something to do; anybody sends, Run receives
	work   sync.WaitGroup             // starts and ends of CLIs

	mu       sync.Mutex    // guards what follows
	profiles []*profile    // the one that was kept last comes first
	broken   []*handle     // that Run is to close
	held     int           // processes: starting, idle, broken, ending
	quiet    time.Time     // nothing is started before
	stats    Stats         // but for Idle
	asked    []demand      // options that were asked for once; the last ones come first
	settled  chan struct{} // closed when a start is over, and replaced
}

// demand is options that were asked for.
type demand struct {
	id   identity
	last time.Time
}

// profile is what is kept warm for one set of options.
type profile struct {
	id       identity
	opts     claude.Options
	n        int       // how many there are to be; zero once it is forgotten
	idle     []*handle // the oldest first
	starting int
	around   surroundings // as last seen
	failures int          // starts and handles that failed in a row
	retry    time.Time    // when to start again after a failure
	awaited  int          // starts that somebody waits for
	soon     int          // how many will probably be asked for in a moment
	expected time.Time    // when that was last said
	size     int64        // bytes of a handle, as last seen; zero if none was
	sized    time.Time    // when that was
	learned  time.Time    // when it was last asked for, if nobody has said to keep it
}

// handle is a CLI that nobody has taken.
type handle struct {
	*claude.Warmed
	line   *line
	around surroundings // in which it was started
	since  time.Time
	took   time.Duration // to start
}

// NewWarm returns a Warm that keeps nothing yet. It starts nothing.
func NewWarm(opts WarmOptions) *Warm {
	opts.Max = cmp.Or(opts.Max, 2)
	opts.MaxAge = cmp.Or(opts.MaxAge, 10*time.Minute)
	opts.Pause = cmp.Or(opts.Pause, time.Second/2)
	opts.MaxMemory = cmp.Or(opts.MaxMemory, 1<<30)
	if opts.Start == nil {
		opts.Start = claude.Warm
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Warm{
		opts:    opts,
		memory:  func(h *claude.Warmed) int64 { return resident(h.Pid()) },
		wake:    make(chan struct{}, 1),
		settled: make(chan struct{}),
	}
}

// Keep says that n CLIs with these options are to be warm, as far as the bounds
// let them; zero forgets the options. When Max is too small for all that is
// kept, there is one for each options before there are two for any, beginning
// with those that were kept last. What opts refer to must not be changed
// afterwards.
//
// CanUseTool, OnFrame, Hooks and servers of this process may be any: those that
// Take is given count. Other functions cannot be compared, and options of one
// conversation cannot be used ahead: the error names the field.
func (w *Warm) Keep(opts claude.Options, n int) error {
	id, err := identify(opts)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.find(id)
	if p == nil {
		if n <= 0 {
			return nil
		}
		p = &profile{id: id, opts: new(line).through(opts)}
	}
	p.n, p.learned = max(n, 0), time.Time{}
	w.profiles = slices.DeleteFunc(w.profiles, func(other *profile) bool { return other == p })
	w.profiles = slices.Insert(w.profiles, 0, p)
	w.nudge()
	return nil
}

// Expect says that one with these options will probably be asked for in a moment: it
// is started at once, as far as the bounds let it. Without Learn it does nothing.
func (w *Warm) Expect(opts claude.Options) {
	id, err := identify(opts)
	if err != nil || w.opts.Learn == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.find(id)
	if p == nil {
		p = &profile{id: id, opts: new(line).through(opts)}
		w.profiles = slices.Insert(w.profiles, 0, p)
	}
	p.soon, p.expected = min(p.soon+1, w.opts.Max), time.Now()
	if p.n == 0 || !p.learned.IsZero() {
		p.n, p.learned = max(p.n, p.soon), p.expected
	}
	w.nudge()
}

// Take returns a CLI that was started with exactly these options, if one is
// kept and ready. It calls the functions of opts, and has its servers; what it
// starts has env, K=V, besides. It is the caller's alone, who closes it: it
// outlives Run and ctx. Its place is filled in the background.
//
// With Learn it waits for one that is being started, if nobody else does: another
// would come later.
func (w *Warm) Take(ctx context.Context, opts claude.Options, env ...string) (*claude.Warmed, bool) {
	id, err := identify(opts)
	if err != nil {
		w.missed()
		return nil, false
	}
	w.learn(id, opts)
	for ctx.Err() == nil {
		h, settled := w.take(id, look(opts))
		if h == nil && settled == nil {
			break
		}
		if h == nil {
			w.await(ctx, id, settled)
			continue
		}
		if err := h.line.connect(ctx, h.Session(), opts, env); err != nil {
			w.opts.Log.Warn("a warm cli cannot be used", "error", err)
			w.mu.Lock()
			w.broken = append(w.broken, h)
			w.mu.Unlock()
			w.nudge()
			continue
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.held--
		w.nudge()
		w.stats.Hits++
		w.stats.Saved += h.took
		return h.Warmed, true
	}
	w.missed()
	return nil, false
}

func (w *Warm) missed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Misses++
}

// take returns a handle that is kept for id, or what is closed when a start is
// over that the caller is to wait for; nil and nil if there is neither.
func (w *Warm) take(id identity, now surroundings) (*handle, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.nudge()
	p := w.find(id)
	if p == nil || p.n == 0 {
		return nil, nil
	}
	for i, h := range p.idle {
		if !w.good(h, now) {
			continue // Run closes it
		}
		p.idle = slices.Delete(p.idle, i, i+1)
		p.failures = 0
		w.quiet = time.Now().Add(w.opts.Pause)
		return h, nil
	}
	if w.opts.Learn > 0 && p.starting > p.awaited {
		p.awaited++
		return nil, w.settled
	}
	return nil, nil
}

// await waits until a start is over.
func (w *Warm) await(ctx context.Context, id identity, settled <-chan struct{}) {
	select {
	case <-settled:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.find(id).awaited-- // it is there as long as somebody waits
}

// maxDemands is how many options are remembered that were asked for once.
const maxDemands = 64

// learn takes note that options were asked for. They have a profile if it was not
// the first time.
func (w *Warm) learn(id identity, opts claude.Options) {
	if w.opts.Learn == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.quiet = now.Add(w.opts.Pause) // who asks may start one
	if p := w.find(id); p != nil {
		p.soon = max(p.soon-1, 0)
		if !p.learned.IsZero() {
			p.learned, p.n = now, min(p.n+1, w.opts.Max)
		}
		return
	}
	known := slices.ContainsFunc(w.asked, func(d demand) bool { return d.id == id && now.Sub(d.last) < w.opts.Learn })
	w.asked = slices.DeleteFunc(w.asked, func(d demand) bool { return d.id == id })
	if !known {
		w.asked = slices.Insert(w.asked, 0, demand{id, now})
		w.asked = w.asked[:min(len(w.asked), maxDemands)]
		return
	}
	w.profiles = slices.Insert(w.profiles, 0, &profile{id: id, opts: new(line).through(opts), n: 1, learned: now})
}

// Stats returns what was done so far.
func (w *Warm) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	for _, p := range w.profiles {
		s.Idle += len(p.idle)
	}
	return s
}

// Run keeps the CLIs warm until ctx ends. It returns nil, when every process
// that was not taken is closed. It is called once.
func (w *Warm) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		t := time.NewTimer(w.tend(ctx))
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-t.C:
		}
		t.Stop()
	}
	w.work.Wait() // a start may still succeed
	w.mu.Lock()
	w.sweep()
	for _, p := range w.profiles {
		for len(p.idle) > 0 {
			w.discard(p, p.idle[0], "shutdown")
		}
	}
	w.mu.Unlock()
	w.work.Wait()
	return nil
}

// nudge has Run look at everything.
func (w *Warm) nudge() {
	select {
	case w.wake <- struct{}{}:
	default: // it will already
	}
}

func (w *Warm) find(id identity) *profile {
	for _, p := range w.profiles {
		if p.id == id {
			return p
		}
	}
	return nil
}

// good tells whether h can be handed out where it would be started in now.
func (w *Warm) good(h *handle, now surroundings) bool {
	return !h.dead() && time.Since(h.since) < w.opts.MaxAge && h.around.equal(now)
}

func (h *handle) dead() bool {
	select {
	case <-h.Done():
		return true
	default:
		return false
	}
}
