// Package pool keeps Claude CLIs ready.
//
// [Warm] holds CLIs that are started and initialized ahead of their first
// prompt. Its owner says with [Warm.Keep] which options are worth it, and takes
// a handle with [Warm.Take] where it would start a CLI:
//
//	h, ok := warm.Take(opts)
//	if !ok {
//		h, err = claude.Warm(ctx, opts)
//	}
//
// A handle is good for a prompt when it was started with the same options, in
// the same directory and environment, from the same file as a CLI that would be
// started now. What else the CLI reads when it starts, such as settings and
// credentials, may be as old as the handle.
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
	Max       int           // processes that are held at once, starting and ending ones included; zero means 2
	MaxAge    time.Duration // of a handle; zero means 10 minutes
	MaxMemory int64         // bytes of all idle handles together, with all that they started; zero means 1 GiB; not bounded but on Linux

	// Start starts a CLI, which must live until ctx ends. Nil means claude.Warm.
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

	mu       sync.Mutex // guards what follows
	profiles []*profile // the one that was kept last comes first
	held     int        // processes: starting, idle, ending
	stats    Stats      // but for Idle
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
	size     int64        // bytes of a handle, as last seen; zero if none was
	sized    time.Time    // when that was
}

// handle is a CLI that nobody has taken.
type handle struct {
	*claude.Warmed
	around surroundings // in which it was started
	since  time.Time
	took   time.Duration // to start
}

// NewWarm returns a Warm that keeps nothing yet. It starts nothing.
func NewWarm(opts WarmOptions) *Warm {
	opts.Max = cmp.Or(opts.Max, 2)
	opts.MaxAge = cmp.Or(opts.MaxAge, 10*time.Minute)
	opts.MaxMemory = cmp.Or(opts.MaxMemory, 1<<30)
	if opts.Start == nil {
		opts.Start = claude.Warm
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Warm{
		opts:   opts,
		memory: func(h *claude.Warmed) int64 { return resident(h.Pid()) },
		wake:   make(chan struct{}, 1),
	}
}

// Keep says that n CLIs with these options are to be warm, as far as the bounds
// let them; zero forgets the options. When Max is too small for all, each
// options get one before any get two, those that were kept last first. What
// opts refer to must not be changed afterwards.
//
// Options that call back into this program cannot be compared, and those of one
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
		p = &profile{id: id, opts: opts}
	}
	p.n = max(n, 0)
	w.profiles = slices.DeleteFunc(w.profiles, func(other *profile) bool { return other == p })
	w.profiles = slices.Insert(w.profiles, 0, p)
	w.nudge()
	return nil
}

// Take returns a CLI that was started with exactly these options, if one is
// kept and ready. It is the caller's alone, who closes it: it outlives Run. Its
// place is filled in the background.
func (w *Warm) Take(opts claude.Options) (*claude.Warmed, bool) {
	id, err := identify(opts)
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stats.Misses++
		return nil, false
	}
	now := look(opts)
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.nudge()
	if p := w.find(id); p != nil && p.n > 0 {
		for i, h := range p.idle {
			if !w.good(h, now) {
				continue // Run closes it
			}
			p.idle = slices.Delete(p.idle, i, i+1)
			p.failures = 0
			w.held--
			w.stats.Hits++
			w.stats.Saved += h.took
			return h.Warmed, true
		}
	}
	w.stats.Misses++
	return nil, false
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

// tend closes what should not be there, starts what should, and returns how
// long nothing else is to be done.
func (w *Warm) tend(ctx context.Context) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := checkEvery
	for _, p := range w.profiles {
		w.inspect(p)
	}
	shares := w.shares()
	for _, p := range w.profiles {
		for len(p.idle) > 0 && len(p.idle)+p.starting > shares[p] {
			w.discard(p, p.idle[0], "too many")
		}
	}
	used := w.shrink()
	for _, p := range w.profiles {
		used += int64(p.starting) * p.size
	}
	for _, p := range w.profiles {
		for len(p.idle)+p.starting < shares[p] && w.held < w.opts.Max {
			if wait := time.Until(p.retry); p.failures > 0 && wait > 0 {
				next = min(next, wait)
				break
			}
			if used+p.size > w.opts.MaxMemory {
				break // it would be closed at once
			}
			used += p.size
			w.start(ctx, p)
		}
		if len(p.idle) > 0 {
			next = min(next, time.Until(p.idle[0].since.Add(w.opts.MaxAge)))
		}
	}
	w.profiles = slices.DeleteFunc(w.profiles, func(p *profile) bool {
		return p.n == 0 && p.starting == 0 && len(p.idle) == 0
	})
	return next
}

// inspect discards the handles of p that are no good any more.
func (w *Warm) inspect(p *profile) {
	now := look(p.opts)
	if !p.around.equal(now) { // what failed may succeed now
		p.around, p.failures, p.size = now, 0, 0
	}
	if time.Since(p.sized) > w.opts.MaxAge { // the next one may be smaller
		p.size = 0
	}
	for _, h := range slices.Clone(p.idle) {
		age := time.Since(h.since)
		switch {
		case h.dead():
			w.discard(p, h, "died")
			w.failed(p, "a warm cli died")
		case age >= w.opts.MaxAge:
			w.discard(p, h, "too old")
		case !h.around.equal(now):
			w.discard(p, h, "outdated")
		case age >= maxBackoff:
			p.failures = 0
		}
	}
}

// shares returns how many handles each profile may have.
func (w *Warm) shares() map[*profile]int {
	shares := map[*profile]int{}
	free := w.opts.Max
	for more := true; more && free > 0; {
		more = false
		for _, p := range w.profiles {
			if shares[p] < p.n && free > 0 {
				shares[p]++
				free--
				more = true
			}
		}
	}
	return shares
}

// shrink discards the oldest handles until the others fit into MaxMemory, and
// returns what those hold.
func (w *Warm) shrink() (used int64) {
	type measured struct {
		p     *profile
		h     *handle
		bytes int64
	}
	var all []measured
	for _, p := range w.profiles {
		for _, h := range p.idle {
			m := measured{p, h, w.memory(h.Warmed)}
			p.size, p.sized = m.bytes, time.Now()
			used += m.bytes
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b measured) int { return a.h.since.Compare(b.h.since) })
	for _, m := range all {
		if used <= w.opts.MaxMemory {
			break
		}
		used -= m.bytes
		w.discard(m.p, m.h, "too much memory")
	}
	return used
}

// discard closes h in the background.
func (w *Warm) discard(p *profile, h *handle, why string) {
	p.idle = slices.DeleteFunc(p.idle, func(other *handle) bool { return other == h })
	w.stats.Discarded++
	w.opts.Log.Debug("warm cli discarded", "why", why, "dir", p.around.dir, "age", time.Since(h.since))
	w.work.Go(func() {
		h.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.held--
		w.nudge()
	})
}

// start starts a CLI for p in the background.
func (w *Warm) start(ctx context.Context, p *profile) {
	p.starting++
	w.held++
	around := p.around
	w.work.Go(func() {
		// Who takes the CLI has it for longer than ctx.
		life, end := context.WithCancelCause(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
		began := time.Now()
		h, err := w.opts.Start(life, p.opts)
		stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		defer w.nudge()
		p.starting--
		if err != nil {
			end(err)
			w.held--
			if ctx.Err() == nil {
				w.failed(p, "a cli cannot be kept warm", "error", err)
			}
			return
		}
		now := time.Now()
		p.idle = append(p.idle, &handle{Warmed: h, around: around, since: now, took: now.Sub(began)})
		w.opts.Log.Debug("cli is warm", "dir", around.dir, "took", now.Sub(began))
	})
}

// failed notes a failure of p, and logs the first in a row.
func (w *Warm) failed(p *profile, what string, args ...any) {
	p.retry = time.Now().Add(min(maxBackoff, time.Second<<min(p.failures, 6)))
	p.failures++
	if p.failures == 1 {
		w.opts.Log.Warn(what, append([]any{"dir", p.around.dir, "model", p.opts.Model}, args...)...)
	}
}
