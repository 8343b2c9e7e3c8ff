package pool

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// SlotLimits say how many runs may be running at once.
type SlotLimits struct {
	Total     int            // zero means 5
	Providers map[string]int // by provider; absent means Total
	Swarms    map[string]int // by swarm; absent means Total
}

// Claim says what a slot is used for.
type Claim struct {
	Tree     string // the root of the run; trees get slots in turn
	Provider string
	Swarm    string
	Rank     int // of its priority; zero is the most urgent
}

// Slots are the right to be running, for a number of runs. A run that waits for
// others lends its slot, so that a tree deeper than the slots gets to its end.
// Methods may be called from any goroutine.
//
// When a slot is free it goes to who had one and lent it, so that what was begun
// is ended first; then to who claims one; then to who looks for work. Among
// equals the most urgent goes first, then the tree that has the fewest slots,
// then who has waited longest.
type Slots struct {
	limits SlotLimits

	mu        sync.Mutex // guards what follows
	free      int
	providers map[string]int // slots in use by claims, by provider
	swarms    map[string]int
	trees     map[string]int
	waiting   []*waiter // in the order in which they came
	idle      []*Slot   // acquired and not claimed
}

// waiter waits for a slot.
type waiter struct {
	stage   stage
	claim   Claim
	granted chan struct{} // closed when it has one
}

// stage says how far a slot's use has got. The furthest goes first.
type stage int

const (
	acquiring stage = iota
	claiming
	reclaiming
)

// NewSlots returns slots that are all free.
func NewSlots(limits SlotLimits) *Slots {
	if limits.Total <= 0 {
		limits.Total = 5
	}
	return &Slots{limits: limits, free: limits.Total, providers: map[string]int{}, swarms: map[string]int{}, trees: map[string]int{}}
}

// Slot is the right to be running. Release must be called in the end.
type Slot struct {
	s      *Slots
	wanted chan struct{} // closed when somebody with more right waits

	// Guarded by s.mu.
	held    bool
	claimed bool
	asked   bool // wanted is closed
	claim   Claim
}

// Acquire waits for a free slot, to look for work with. If ctx ends first it
// returns the cause.
func (s *Slots) Acquire(ctx context.Context) (*Slot, error) {
	if err := s.wait(ctx, &waiter{stage: acquiring}); err != nil {
		return nil, err
	}
	slot := &Slot{s: s, wanted: make(chan struct{}), held: true}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, slot)
	s.dispatch() // somebody may want it already
	return slot, nil
}

// TryAcquire returns a slot to look for work with, or nil if none is free or
// others wait for one.
func (s *Slots) TryAcquire() *Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 || len(s.waiting) > 0 {
		return nil
	}
	s.free--
	slot := &Slot{s: s, wanted: make(chan struct{}), held: true}
	s.idle = append(s.idle, slot)
	return slot
}

// Wanted is closed when the slot was acquired and not claimed, and somebody else
// needs one: who has found no work releases it.
func (s *Slot) Wanted() <-chan struct{} { return s.wanted }

// Claim says what the slot is used for, and waits until that may be running;
// meanwhile others may use the slot. If ctx ends first it returns the cause, and
// the slot is not held.
func (s *Slot) Claim(ctx context.Context, c Claim) error {
	s.s.mu.Lock()
	s.s.idle = slices.DeleteFunc(s.s.idle, func(i *Slot) bool { return i == s })
	s.claim, s.claimed = c, true
	if s.held && s.s.allowed(c) {
		s.s.use(c, 1)
		if s.asked {
			s.s.dispatch() // who wanted it needs another
		}
		s.s.mu.Unlock()
		return nil
	}
	s.give()
	s.s.mu.Unlock()
	return s.again(ctx, claiming)
}

// Lend lets others use the slot until Reclaim returns. Nothing happens if it is
// lent already.
func (s *Slot) Lend() {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	if s.held {
		s.s.use(s.claim, -1)
		s.give()
	}
}

// Reclaim waits for a slot in the place of the one that was lent. If ctx ends
// first it returns the cause.
func (s *Slot) Reclaim(ctx context.Context) error {
	s.s.mu.Lock()
	held := s.held
	s.s.mu.Unlock()
	if held {
		return nil
	}
	return s.again(ctx, reclaiming)
}

func (s *Slot) again(ctx context.Context, stage stage) error {
	if err := s.s.wait(ctx, &waiter{stage: stage, claim: s.claim}); err != nil {
		return err
	}
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	s.held = true
	return nil
}

// Release gives the slot back for good. Nothing happens if it is not held.
func (s *Slot) Release() {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	s.s.idle = slices.DeleteFunc(s.s.idle, func(i *Slot) bool { return i == s })
	if !s.held {
		return
	}
	if s.claimed {
		s.s.use(s.claim, -1)
	}
	s.give()
}

// give makes the slot free. The caller holds s.s.mu.
func (s *Slot) give() {
	if s.held {
		s.held = false
		s.s.free++
	}
	s.s.dispatch()
}

// wait waits until w is granted a slot.
func (s *Slots) wait(ctx context.Context, w *waiter) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.granted = make(chan struct{})
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.dispatch()
	s.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, w); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return context.Cause(ctx)
	}
	// It was granted in the same moment: give it back.
	if w.stage != acquiring {
		s.use(w.claim, -1)
	}
	s.free++
	s.dispatch()
	return context.Cause(ctx)
}

// dispatch grants what is free to who has the most right to it, and asks for what
// is idle if that is not enough. The caller holds mu.
func (s *Slots) dispatch() {
	for s.free > 0 {
		w := s.first()
		if w == nil {
			return
		}
		s.waiting = slices.DeleteFunc(s.waiting, func(other *waiter) bool { return other == w })
		s.free--
		if w.stage != acquiring {
			s.use(w.claim, 1)
		}
		close(w.granted)
	}
	if w := s.first(); w == nil || w.stage == acquiring {
		return
	}
	for _, slot := range s.idle {
		if !slot.asked {
			slot.asked = true
			close(slot.wanted)
			return
		}
	}
}

// first returns who has the most right to a slot, of those who could use one.
func (s *Slots) first() *waiter {
	var best *waiter
	for _, w := range s.waiting {
		if w.stage != acquiring && !s.allowed(w.claim) {
			continue
		}
		if best == nil || s.before(w, best) {
			best = w
		}
	}
	return best
}

func (s *Slots) before(a, b *waiter) bool {
	return cmp.Or(
		cmp.Compare(b.stage, a.stage),
		cmp.Compare(a.claim.Rank, b.claim.Rank),
		cmp.Compare(s.trees[a.claim.Tree], s.trees[b.claim.Tree]),
	) < 0
}

// allowed tells whether the limits let c be running.
func (s *Slots) allowed(c Claim) bool {
	below := func(limits, used map[string]int, name string) bool {
		limit, ok := limits[name]
		return !ok || used[name] < limit
	}
	return below(s.limits.Providers, s.providers, c.Provider) && below(s.limits.Swarms, s.swarms, c.Swarm)
}

// use counts n more slots for c.
func (s *Slots) use(c Claim, n int) {
	count(s.providers, c.Provider, n)
	count(s.swarms, c.Swarm, n)
	count(s.trees, c.Tree, n)
}

func count(used map[string]int, name string, n int) {
	if used[name] += n; used[name] == 0 {
		delete(used, name)
	}
}

// SlotStats is what slots are used for.
type SlotStats struct {
	Total, Free, Idle, Waiting int
}

// Stats returns what the slots are used for now.
func (s *Slots) Stats() SlotStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SlotStats{Total: s.limits.Total, Free: s.free, Idle: len(s.idle), Waiting: len(s.waiting)}
}
