package pool

import (
	"context"
	"slices"
	"time"

	"github.com/dfaf701a/nestor/claude"
)

// tend closes what should not be there, starts what should, and returns how
// long nothing else is to be done.
func (w *Warm) tend(ctx context.Context) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := checkEvery
	w.sweep()
	for _, p := range w.profiles {
		if !p.learned.IsZero() && time.Since(p.learned) >= w.opts.Learn {
			p.n = 0
		}
		if time.Since(p.expected) >= w.opts.Pause {
			p.soon = 0
		}
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
			wait := time.Until(p.retry)
			if len(p.idle)+p.starting-p.awaited >= p.soon {
				wait = max(wait, time.Until(w.quiet))
			}
			if wait > 0 {
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
		return p.n == 0 && p.starting == 0 && len(p.idle) == 0 && p.awaited == 0
	})
	return next
}

// inspect discards the handles of p that are no good any more.
func (w *Warm) inspect(p *profile) {
	now := look(p.opts)
	if !p.around.equal(now) { // what failed may succeed now
		p.around, p.failures, p.retry, p.size = now, 0, time.Time{}, 0
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

// sweep closes what could not be used.
func (w *Warm) sweep() {
	for _, h := range w.broken {
		w.close(h, "broken")
	}
	w.broken = nil
}

// discard closes a handle of p in the background.
func (w *Warm) discard(p *profile, h *handle, why string) {
	p.idle = slices.DeleteFunc(p.idle, func(other *handle) bool { return other == h })
	w.close(h, why)
}

// close closes h in the background.
func (w *Warm) close(h *handle, why string) {
	w.stats.Discarded++
	w.opts.Log.Debug("warm cli discarded", "why", why, "dir", h.around.dir, "age", time.Since(h.since))
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
		l := new(line)
		opts, err := l.prepare(l.through(p.opts))
		var h *claude.Warmed
		if err == nil {
			h, err = w.opts.Start(life, opts)
		}
		if err == nil {
			if !w.wanted(p) {
				// It gathers what the model is told with the first prompt, and keeps it.
				h.Session().ContextUsage(life, "summary")
			}
			go func() { // as long as the CLI, which may outlive Run
				<-h.Done()
				l.end()
			}()
		} else {
			l.end()
		}
		stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		defer w.nudge()
		p.starting--
		close(w.settled)
		w.settled = make(chan struct{})
		if err != nil {
			end(err)
			w.held--
			if ctx.Err() == nil {
				w.failed(p, "a cli cannot be kept warm", "error", err)
			}
			return
		}
		now := time.Now()
		p.idle = append(p.idle, &handle{Warmed: h, line: l, around: around, since: now, took: now.Sub(began)})
		w.opts.Log.Debug("cli is warm", "dir", around.dir, "took", now.Sub(began))
	})
}

// wanted tells whether somebody waits for a start of p.
func (w *Warm) wanted(p *profile) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.awaited > 0
}

// failed notes a failure of p, and logs the first in a row.
func (w *Warm) failed(p *profile, what string, args ...any) {
	p.retry = time.Now().Add(min(maxBackoff, time.Second<<min(p.failures, 6)))
	p.failures++
	if p.failures == 1 {
		w.opts.Log.Warn(what, append([]any{"dir", p.around.dir, "model", p.opts.Model}, args...)...)
	}
}
