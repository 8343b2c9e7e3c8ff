package pool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// take acquires and claims a slot.
func take(t *testing.T, s *Slots, c Claim) *Slot {
	t.Helper()
	slot, err := s.Acquire(t.Context())
	if err == nil {
		err = slot.Claim(t.Context(), c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

// A tree of any depth ends with one slot: who waits for its children lends it.
// The bubble fails by itself if all wait for each other.
func TestTreeDeeperThanPool(t *testing.T) {
	for _, total := range []int{1, 2, 5} {
		synctest.Test(t, func(t *testing.T) {
			s := NewSlots(SlotLimits{Total: total})
			var running, most, leaves atomic.Int32
			var run func(depth int)
			run = func(depth int) {
				slot := take(t, s, Claim{Tree: "t"})
				defer slot.Release()
				now := running.Add(1)
				defer running.Add(-1)
				most.Store(max(most.Load(), now))
				time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
				if depth == 0 {
					leaves.Add(1)
					return
				}
				running.Add(-1)
				slot.Lend()
				var children sync.WaitGroup
				for range 3 {
					children.Go(func() { run(depth - 1) })
				}
				children.Wait()
				if err := slot.Reclaim(t.Context()); err != nil {
					t.Error(err)
				}
				running.Add(1)
			}
			run(5)
			if leaves.Load() != 243 || int(most.Load()) > total {
				t.Errorf("%d leaves, %d at once with %d slots", leaves.Load(), most.Load(), total)
			}
			if got := s.Stats(); got.Free != total || got.Waiting != 0 || got.Idle != 0 {
				t.Errorf("in the end %+v", got)
			}
		})
	}
}

// Who looks for work with the only slot gives it up when a run wants its own back.
func TestIdleSlotIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(SlotLimits{Total: 1})
		a := take(t, s, Claim{})
		a.Lend()
		idle, err := s.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-idle.Wanted():
			t.Error("nobody wants it, and it is wanted")
		default:
		}
		go func() {
			<-idle.Wanted()
			idle.Release()
		}()
		if err := a.Reclaim(t.Context()); err != nil {
			t.Error(err)
		}
		a.Release()
	})
}

// Who looks for work may find some in the moment in which its slot is wanted: then
// the next idle one is.
func TestAnotherIdleSlotIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(SlotLimits{Total: 2})
		a := take(t, s, Claim{})
		a.Lend()
		busy, idle := s.TryAcquire(), s.TryAcquire()
		back := make(chan error, 1)
		go func() { back <- a.Reclaim(t.Context()) }()
		<-busy.Wanted()
		if err := busy.Claim(t.Context(), Claim{}); err != nil {
			t.Fatal(err)
		}
		<-idle.Wanted()
		idle.Release()
		if err := <-back; err != nil {
			t.Error(err)
		}
		a.Release()
		busy.Release()
	})
}

func TestTryAcquireTakesNothingFromWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(SlotLimits{Total: 2, Providers: map[string]int{"p": 1}})
		a, b := s.TryAcquire(), s.TryAcquire()
		if a == nil || b == nil || s.TryAcquire() != nil {
			t.Fatal("of two slots not two were acquired")
		}
		if err := a.Claim(t.Context(), Claim{Provider: "p"}); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			if err := b.Claim(t.Context(), Claim{Provider: "p"}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // b waits, and its slot is free
		if s.TryAcquire() != nil {
			t.Error("a slot was taken from who waits")
		}
		a.Release()
		all.Wait()
		b.Release()
		if got := s.Stats(); got.Free != 2 || got.Idle != 0 {
			t.Errorf("in the end %+v", got)
		}
	})
}

func TestReclaimBeforeNewWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(SlotLimits{Total: 1})
		lent := take(t, s, Claim{Rank: 2})
		lent.Lend()
		holder := take(t, s, Claim{})
		var mu sync.Mutex
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		var all sync.WaitGroup
		all.Go(func() {
			slot := take(t, s, Claim{Rank: 0})
			note("new")
			slot.Release()
		})
		synctest.Wait()
		all.Go(func() {
			if err := lent.Reclaim(t.Context()); err != nil {
				t.Error(err)
			}
			note("old")
			lent.Release()
		})
		synctest.Wait()
		holder.Release()
		all.Wait()
		if !slices.Equal(order, []string{"old", "new"}) {
			t.Errorf("the order is %v", order)
		}
	})
}

func TestLimitsPerProviderAndSwarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(SlotLimits{Total: 4, Providers: map[string]int{"sdk": 2}, Swarms: map[string]int{"a": 1}})
		var sdk, a, most atomic.Int32
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				c := Claim{Tree: fmt.Sprint(i), Provider: []string{"sdk", "api"}[i%2], Swarm: []string{"a", "b", ""}[i%3]}
				slot := take(t, s, c)
				defer slot.Release()
				if c.Provider == "sdk" {
					if sdk.Add(1) > 2 {
						t.Error("three at once of a provider that allows two")
					}
					defer sdk.Add(-1)
				}
				if c.Swarm == "a" {
					if a.Add(1) > 1 {
						t.Error("two at once of a swarm that allows one")
					}
					defer a.Add(-1)
				}
				most.Store(max(most.Load(), int32(4-s.Stats().Free)))
				time.Sleep(time.Millisecond)
			})
		}
		all.Wait()
		if most.Load() < 3 {
			t.Errorf("at most %d were used: a limit holds others back", most.Load())
		}
		if got := s.Stats(); got.Free != 4 {
			t.Errorf("in the end %+v", got)
		}
	})
}

// A tree that wants everything gets its turn, not more.
func TestFairBetweenTrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(SlotLimits{Total: 2, Providers: map[string]int{"p": 2}})
		// Both are past Acquire: they wait with what they claim.
		hold := []*Slot{take(t, s, Claim{Provider: "p"}), take(t, s, Claim{Provider: "p"})}
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		claim := func(tree string) {
			all.Go(func() {
				slot := &Slot{s: s, wanted: make(chan struct{})}
				if err := slot.Claim(t.Context(), Claim{Tree: tree, Provider: "p"}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, tree)
				mu.Unlock()
				time.Sleep(time.Second)
				slot.Release()
			})
			synctest.Wait()
		}
		for range 6 {
			claim("large")
		}
		claim("small")
		hold[0].Release()
		hold[1].Release()
		all.Wait()
		if i := slices.Index(order, "small"); i > 1 {
			t.Errorf("the order is %v", order)
		}
	})
}

func TestUrgentClaimsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(SlotLimits{Total: 1})
		hold := take(t, s, Claim{})
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for _, rank := range []int{2, 1, 0, 1} {
			all.Go(func() {
				slot := &Slot{s: s, wanted: make(chan struct{})}
				if err := slot.Claim(t.Context(), Claim{Rank: rank}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, rank)
				mu.Unlock()
				slot.Release()
			})
			synctest.Wait()
		}
		hold.Release()
		all.Wait()
		if !slices.Equal(order, []int{0, 1, 1, 2}) {
			t.Errorf("the order is %v", order)
		}
	})
}

func TestWaitingForASlotEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(SlotLimits{Total: 1, Providers: map[string]int{"none": 0}})
		enough := errors.New("enough")
		ctx, stop := context.WithTimeoutCause(t.Context(), time.Second, enough)
		defer stop()
		slot := take(t, s, Claim{Provider: "p"})
		if _, err := s.Acquire(ctx); !errors.Is(err, enough) {
			t.Errorf("acquiring: %v", err)
		}
		slot.Lend()
		other, err := s.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := slot.Reclaim(ctx); !errors.Is(err, enough) {
			t.Errorf("reclaiming: %v", err)
		}
		slot.Release()
		late, stop := context.WithTimeoutCause(t.Context(), time.Second, enough)
		defer stop()
		if err := other.Claim(late, Claim{Provider: "none"}); !errors.Is(err, enough) {
			t.Errorf("claiming: %v", err)
		}
		other.Release()
		if got := s.Stats(); got.Free != 1 || got.Waiting != 0 || got.Idle != 0 {
			t.Errorf("in the end %+v", got)
		}
	})
}
