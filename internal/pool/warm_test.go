package pool

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dfaf701a/nestor/claude"
)

func TestTakenOnce(t *testing.T) {
	bubble(t, WarmOptions{Max: 4}, func(t *testing.T, w running) {
		opts := claude.Options{Dir: t.TempDir()}
		w.keep(t, opts, 4)
		pass(2 * time.Second)
		var mu sync.Mutex
		times := map[*claude.Warmed]int{}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if h, ok := w.Take(t.Context(), opts); ok {
					mu.Lock()
					defer mu.Unlock()
					times[h]++
				}
			})
		}
		all.Wait() // replacements take a second, so there are none yet
		if len(times) != 4 {
			t.Errorf("%d handles were taken of 4", len(times))
		}
		for h, n := range times {
			if n != 1 {
				t.Errorf("a handle was taken %d times", n)
			}
			h.Close()
		}
		if s := w.Stats(); s.Hits != 4 || s.Misses != 46 {
			t.Errorf("got %+v", s)
		}
	})
}

func TestTakenIsReplaced(t *testing.T) {
	bubble(t, WarmOptions{}, func(t *testing.T, w running) {
		opts := claude.Options{Model: "m"}
		w.miss(t, opts) // nobody keeps it
		w.keep(t, opts, 1)
		w.miss(t, opts) // not yet
		var seen []*claude.Warmed
		for range 3 {
			pass(2 * time.Second)
			h := w.hit(t, opts)
			w.miss(t, opts) // its replacement takes a second
			if slices.Contains(seen, h) {
				t.Error("a handle was taken twice")
			}
			seen = append(seen, h)
		}
		pass(2 * time.Second)
		if got, want := w.Stats(), (Stats{Hits: 3, Misses: 5, Idle: 1, Saved: 3 * time.Second}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// The first prompt of a CLI that was taken has the machine to itself.
func TestNextStartWaits(t *testing.T) {
	bubble(t, WarmOptions{}, func(t *testing.T, w running) {
		opts := claude.Options{Model: "m"}
		w.keep(t, opts, 1)
		pass(2 * time.Second)
		w.hit(t, opts)
		pass(time.Second/2 - time.Millisecond)
		if n := len(w.cli.tried()); n != 1 {
			t.Errorf("%d were started, want no second one yet", n)
		}
		pass(time.Millisecond)
		if n := len(w.cli.tried()); n != 2 {
			t.Errorf("%d were started, want a second one", n)
		}
	})
}

func TestNumberIsBounded(t *testing.T) {
	bubble(t, WarmOptions{Max: 3}, func(t *testing.T, w running) {
		a, b, c := claude.Options{Model: "a"}, claude.Options{Model: "b"}, claude.Options{Model: "c"}
		w.keep(t, a, 5)
		pass(2 * time.Second)
		if s := w.Stats(); s.Idle != 3 {
			t.Errorf("%d are idle, want all that there may be", s.Idle)
		}
		w.keep(t, b, 1) // which has room when the oldest of a are closed
		w.keep(t, c, 1)
		pass(5 * time.Second)
		if s := w.Stats(); s.Idle != 3 || s.Discarded != 2 {
			t.Errorf("got %+v", s)
		}
		pass(time.Minute)
		if _, most := w.cli.alive(); most != 3 {
			t.Errorf("%d lived at once, want at most 3", most)
		}
		for _, opts := range []claude.Options{a, b, c} {
			w.hit(t, opts)
		}
	})
}

// A fourth profile takes the place of the one that was kept first, and keeps
// it: nothing is started and closed in turns.
func TestLastKeptComesFirst(t *testing.T) {
	bubble(t, WarmOptions{Max: 1}, func(t *testing.T, w running) {
		a, b := claude.Options{Model: "a"}, claude.Options{Model: "b"}
		w.keep(t, a, 1)
		pass(2 * time.Second)
		w.keep(t, b, 1)
		pass(time.Minute)
		w.miss(t, a)
		w.hit(t, b)
		pass(time.Minute)
		if n := len(w.cli.tried()); n != 3 {
			t.Errorf("%d were started, want one of a and two of b", n)
		}
	})
}

// A CLI that takes its time to end still counts.
func TestEndingOnesCount(t *testing.T) {
	bubble(t, WarmOptions{Max: 2, MaxAge: time.Minute}, func(t *testing.T, w running) {
		w.cli.ends = 3 * time.Second
		w.keep(t, claude.Options{}, 2)
		pass(5 * time.Minute)
		if _, most := w.cli.alive(); most != 2 || len(w.cli.tried()) < 6 {
			t.Errorf("%d lived at once of %d, want at most 2", most, len(w.cli.tried()))
		}
	})
}

func TestAgeIsBounded(t *testing.T) {
	bubble(t, WarmOptions{MaxAge: 58 * time.Second}, func(t *testing.T, w running) {
		opts := claude.Options{Model: "m"}
		w.keep(t, opts, 1)
		pass(time.Second + 57*time.Second)
		if s := w.Stats(); s.Discarded != 0 || s.Idle != 1 {
			t.Errorf("a second too early: %+v", s)
		}
		pass(time.Second)
		if s := w.Stats(); s.Discarded != 1 || s.Idle != 0 {
			t.Errorf("on time: %+v", s)
		}
		w.miss(t, opts)
		if now, _ := w.cli.alive(); now != 1 { // the one that starts
			t.Errorf("%d live", now)
		}
		pass(time.Second)
		w.hit(t, opts)
	})
}

func TestMemoryIsBounded(t *testing.T) {
	bubble(t, WarmOptions{Max: 4, MaxMemory: 100}, func(t *testing.T, w running) {
		size := map[*fakeCLI]int64{} // 40 if nothing else is said
		var mu sync.Mutex
		w.memory = func(h *claude.Warmed) int64 {
			mu.Lock()
			defer mu.Unlock()
			return cmp.Or(size[w.cli.cli(h)], 40)
		}
		opts := claude.Options{Model: "m"}
		w.keep(t, opts, 4)
		pass(2 * time.Second)
		if s := w.Stats(); s.Idle != 2 || s.Discarded != 2 {
			t.Errorf("got %+v", s)
		}
		pass(time.Minute)
		if s := w.Stats(); s.Idle != 2 || s.Discarded != 2 {
			t.Errorf("some were started only to be closed: %+v", s)
		}
		// The younger one grows: the older one goes.
		w.mu.Lock()
		older, younger := w.cli.cli(w.profiles[0].idle[0].Warmed), w.cli.cli(w.profiles[0].idle[1].Warmed)
		w.mu.Unlock()
		mu.Lock()
		size[younger] = 70
		mu.Unlock()
		pass(checkEvery)
		if s := w.Stats(); s.Idle != 1 || s.Discarded != 3 || !older.over() || younger.over() {
			t.Errorf("got %+v", s)
		}
		w.hit(t, opts)
		pass(time.Minute)
		if s := w.Stats(); s.Idle == 0 {
			t.Errorf("there is room again: %+v", s)
		}
	})
}

func TestOldestGoesForMemory(t *testing.T) {
	bubble(t, WarmOptions{MaxMemory: 100}, func(t *testing.T, w running) {
		w.memory = func(*claude.Warmed) int64 { return 60 }
		older, younger := claude.Options{Model: "older"}, claude.Options{Model: "younger"}
		w.keep(t, older, 1)
		pass(10 * time.Second)
		w.keep(t, younger, 1)
		pass(10 * time.Second)
		w.miss(t, older)
		w.hit(t, younger)
		pass(time.Second)
		w.miss(t, older) // has Run look while the younger one starts
		pass(10 * time.Second)
		w.hit(t, younger)
		if s := w.Stats(); s.Discarded != 1 {
			t.Errorf("some were started only to be closed: %+v", s)
		}
	})
}

func TestOneThatIsTooBigIsNotTriedAgainAndAgain(t *testing.T) {
	bubble(t, WarmOptions{MaxMemory: 100}, func(t *testing.T, w running) {
		w.memory = func(*claude.Warmed) int64 { return 101 }
		w.keep(t, claude.Options{}, 1)
		pass(9 * time.Minute)
		if n := len(w.cli.tried()); n != 1 {
			t.Errorf("it was started %d times", n)
		}
		pass(2 * time.Minute)
		if n := len(w.cli.tried()); n != 2 {
			t.Errorf("after MaxAge it was started %d times, want another try", n)
		}
	})
}

func TestOptionsChange(t *testing.T) {
	bubble(t, WarmOptions{}, func(t *testing.T, w running) {
		old, changed := claude.Options{Env: []string{"A=1"}}, claude.Options{Env: []string{"A=2"}}
		w.keep(t, old, 1)
		pass(2 * time.Second)
		w.miss(t, changed)
		w.keep(t, old, 0)
		w.keep(t, changed, 1)
		w.miss(t, old)
		pass(2 * time.Second)
		w.hit(t, changed)
		w.miss(t, old)
		if !w.cli.nth(0).over() {
			t.Error("the old one is still there")
		}
	})
}

func TestSurroundingsChange(t *testing.T) {
	write := func(t *testing.T, path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name   string
		change func(t *testing.T, opts claude.Options)
	}{
		{"another size of the CLI", func(t *testing.T, opts claude.Options) {
			info, err := os.Stat(opts.Path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, opts.Path, "longer")
			if err := os.Chtimes(opts.Path, time.Time{}, info.ModTime()); err != nil {
				t.Fatal(err)
			}
		}},
		{"another time of the CLI", func(t *testing.T, opts claude.Options) {
			if err := os.Chtimes(opts.Path, time.Time{}, time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}},
		{"the CLI is another file", func(t *testing.T, opts claude.Options) {
			info, err := os.Stat(opts.Path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, opts.Path+".new", "old")
			if err := errors.Join(os.Chtimes(opts.Path+".new", time.Time{}, info.ModTime()), os.Rename(opts.Path+".new", opts.Path)); err != nil {
				t.Fatal(err)
			}
		}},
		{"the CLI is gone", func(t *testing.T, opts claude.Options) {
			if err := os.Remove(opts.Path); err != nil {
				t.Fatal(err)
			}
		}},
		{"a new directory of the same name", func(t *testing.T, opts claude.Options) {
			if err := errors.Join(os.Rename(opts.Dir, opts.Dir+".old"), os.Mkdir(opts.Dir, 0o700)); err != nil {
				t.Fatal(err)
			}
		}},
		{"the environment", func(t *testing.T, _ claude.Options) { t.Setenv("NESTOR_TEST", "changed") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("NESTOR_TEST", "1")
			bubble(t, WarmOptions{}, func(t *testing.T, w running) {
				opts := claude.Options{Path: filepath.Join(t.TempDir(), "claude"), Dir: filepath.Join(t.TempDir(), "work")}
				write(t, opts.Path, "old")
				if err := os.Mkdir(opts.Dir, 0o700); err != nil {
					t.Fatal(err)
				}
				w.keep(t, opts, 1)
				pass(2 * time.Second)
				test.change(t, opts)
				w.miss(t, opts)
				pass(2 * time.Second)
				if !w.cli.nth(0).over() {
					t.Error("the old one is still there")
				}
				w.hit(t, opts)
			})
		})
	}
	t.Run("but not an environment that is not inherited", func(t *testing.T) {
		bubble(t, WarmOptions{}, func(t *testing.T, w running) {
			opts := claude.Options{Path: "/no/such/claude", ReplaceEnv: true}
			w.keep(t, opts, 1)
			pass(2 * time.Second)
			t.Setenv("NESTOR_TEST", "changed")
			w.hit(t, opts)
		})
	})
}

// Nobody takes anything here: what is outdated is noticed all the same.
func TestChangesAreNoticedInTheBackground(t *testing.T) {
	bubble(t, WarmOptions{}, func(t *testing.T, w running) {
		opts := claude.Options{Path: filepath.Join(t.TempDir(), "claude")}
		w.keep(t, opts, 1)
		pass(2 * time.Second)
		if err := os.WriteFile(opts.Path, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		pass(checkEvery + time.Second)
		if s := w.Stats(); s.Idle != 1 || s.Discarded != 1 {
			t.Errorf("got %+v", s)
		}
	})
}

func TestDeadHandleIsNotTaken(t *testing.T) {
	bubble(t, WarmOptions{}, func(t *testing.T, w running) {
		opts := claude.Options{Model: "m"}
		w.keep(t, opts, 1)
		pass(2 * time.Second)
		w.cli.nth(0).Kill()
		synctest.Wait()
		w.miss(t, opts)
		pass(3 * time.Second)
		w.hit(t, opts)
		if s := w.Stats(); s.Discarded != 1 || s.Hits != 1 {
			t.Errorf("got %+v", s)
		}
	})
}

func TestNothingIsLeftAfterRun(t *testing.T) {
	bubble(t, WarmOptions{Max: 4}, func(t *testing.T, w running) {
		idle, starting := claude.Options{Model: "idle"}, claude.Options{Model: "starting"}
		w.keep(t, idle, 2)
		pass(2 * time.Second)
		taken, ok := w.Take(t.Context(), idle)
		if !ok {
			t.Fatal("there was none to take")
		}
		w.keep(t, starting, 2)
		pass(time.Second / 2)
		if now, _ := w.cli.alive(); now != 5 {
			t.Fatalf("%d live, want one idle, one taken and three that start", now)
		}
		w.stop()
		if now, _ := w.cli.alive(); now != 1 {
			t.Errorf("%d live, want the taken one alone", now)
		}
		w.miss(t, idle)
		if s := w.Stats(); s.Idle != 0 {
			t.Errorf("got %+v", s)
		}
		select {
		case <-taken.Done():
			t.Error("the taken one ended with Run")
		default:
		}
		taken.Close()
	})
}

// A start that succeeds when nobody wants it any more is not left behind.
func TestStartThatEndsAfterRun(t *testing.T) {
	bubble(t, WarmOptions{}, func(t *testing.T, w running) {
		w.cli.stubborn = true
		w.keep(t, claude.Options{}, 2)
		pass(time.Second / 2)
		w.stop()
		if now, _ := w.cli.alive(); now != 0 || w.Stats() != (Stats{Discarded: 2}) {
			t.Errorf("%d live: %+v", now, w.Stats())
		}
	})
}

// Take does not rely on Run to have looked: here nobody runs.
func TestTakeLooksForItself(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*Warm, *handle)
		want  bool
	}{
		{"good", func(*Warm, *handle) {}, true},
		{"too old", func(_ *Warm, h *handle) { h.since = time.Now().Add(-10 * time.Minute) }, false},
		{"forgotten", func(w *Warm, _ *handle) { w.Keep(claude.Options{}, 0) }, false},
		{"dead", func(_ *Warm, h *handle) { h.Close() }, false},
		{"outdated", func(_ *Warm, h *handle) { h.around.dir = "/elsewhere" }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := NewWarm(WarmOptions{})
				if err := w.Keep(claude.Options{}, 1); err != nil {
					t.Fatal(err)
				}
				started, err := new(fakes).start(t.Context(), claude.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer started.Close()
				h := &handle{Warmed: started, line: new(line), around: look(claude.Options{}), since: time.Now()}
				w.profiles[0].idle = []*handle{h}
				test.spoil(w, h)
				if _, ok := w.Take(t.Context(), claude.Options{}); ok != test.want {
					t.Errorf("taken: %t", ok)
				}
			})
		})
	}
}

func TestKeepZero(t *testing.T) {
	bubble(t, WarmOptions{}, func(t *testing.T, w running) {
		opts := claude.Options{Model: "m"}
		w.keep(t, opts, 0) // nothing to forget
		w.keep(t, opts, 2)
		pass(2 * time.Second)
		w.keep(t, opts, 1)
		pass(0)
		if s := w.Stats(); s.Idle != 1 || s.Discarded != 1 {
			t.Errorf("one less: %+v", s)
		}
		w.keep(t, opts, 2)
		pass(time.Second / 2)
		w.keep(t, opts, 0) // one is idle, one starts
		w.miss(t, opts)
		pass(time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if now, _ := w.cli.alive(); now != 0 || len(w.profiles) != 0 {
			t.Errorf("%d live, %d profiles are left", now, len(w.profiles))
		}
	})
}

func TestFailuresBackOff(t *testing.T) {
	var warnings []string
	log := slog.New(logged{level: slog.LevelWarn, add: func(r slog.Record) { warnings = append(warnings, r.Message) }})
	bubble(t, WarmOptions{Log: log}, func(t *testing.T, w running) {
		w.cli.setFail(errors.New("no such luck"))
		begin := time.Now()
		opts, fine := claude.Options{Model: "m"}, claude.Options{Model: "fine"}
		w.keep(t, opts, 1)
		pass(200 * time.Second)
		var at []int
		for _, try := range w.cli.tried() {
			at = append(at, int(try.Sub(begin).Seconds()))
		}
		if want := []int{0, 1, 3, 7, 15, 31, 63, 123, 183}; !slices.Equal(at, want) {
			t.Errorf("tried after %v seconds, want %v", at, want)
		}
		if len(warnings) != 1 {
			t.Errorf("logged %q, want one warning", warnings)
		}
		w.cli.setFail(nil)
		w.keep(t, fine, 1) // which does not wait for the other
		pass(2 * time.Second)
		w.hit(t, fine)
		pass(time.Minute)
		w.hit(t, opts)
	})
}

// What a start failed for may have been put right.
func TestChangeEndsTheBackoff(t *testing.T) {
	bubble(t, WarmOptions{}, func(t *testing.T, w running) {
		opts := claude.Options{Path: filepath.Join(t.TempDir(), "claude")}
		w.cli.setFail(errors.New("no such luck"))
		w.keep(t, opts, 1)
		pass(125 * time.Second) // the next try is in a minute
		w.cli.setFail(nil)
		if err := os.WriteFile(opts.Path, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		pass(checkEvery + time.Second)
		w.hit(t, opts)
	})
}

// A CLI that starts and dies soon is not started over and over either.
func TestDyingBacksOff(t *testing.T) {
	bubble(t, WarmOptions{}, func(t *testing.T, w running) {
		w.keep(t, claude.Options{}, 1)
		for range 600 {
			pass(time.Second)
			w.cli.mu.Lock()
			for _, h := range w.cli.of {
				h.Kill()
			}
			w.cli.mu.Unlock()
		}
		if n := len(w.cli.tried()); n > 20 {
			t.Errorf("started %d times in ten minutes", n)
		}
	})
}
