package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/internal/soak"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// inFlight is how many runs there are when the daemon is killed.
func inFlight() int { return soak.Of(8, 20) }

const chaosScript = `
turns:
  - say:
      - {thinking: hm, after: 100ms}
      - {text: I begin., after: 150ms}
      - {tool: {name: Bash, input: {command: make}, result: ok, after: 200ms}}
      - {tool: {name: Read, input: {file_path: a}, result: ok, after: 200ms}}
      - {text: Done., after: 150ms}
    cost_usd: 0.01
`

const chaosModel = `
rules:
  - turns:
      - {text: I begin., wait: 100ms, tools: [{name: Bash, input: {command: "sleep 0.2; echo one", description: one}}]}
      - {text: Then., wait: 100ms, tools: [{name: Bash, input: {command: "sleep 0.2; echo two", description: two}}]}
      - {text: Done.}
`

// witness follows a run from its first event to its last, whatever happens to
// the daemon, and sees each event once.
type witness struct {
	id   nestor.ID
	seen []uint64
	ends int
	err  error
}

func (w *witness) watch(ctx context.Context, c *api.Client) {
	for w.ends == 0 && ctx.Err() == nil && w.err == nil {
		after := uint64(0)
		if len(w.seen) > 0 {
			after = w.seen[len(w.seen)-1]
		}
		for e, err := range c.Events(ctx, w.id, api.EventsQuery{After: after, Follow: true}) {
			if err != nil {
				if !errors.Is(err, api.ErrDisconnected) && !errors.Is(err, api.ErrNoDaemon) && ctx.Err() == nil {
					w.err = err
				}
				break
			}
			seq := e.Head().Seq
			if len(w.seen) > 0 && seq <= w.seen[len(w.seen)-1] {
				w.err = fmt.Errorf("position %d comes behind %d", seq, w.seen[len(w.seen)-1])
			}
			w.seen = append(w.seen, seq)
			if _, end := e.(*nestor.ExecutionComplete); end {
				w.ends++
			}
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if w.ends == 0 && w.err == nil {
		w.err = context.Cause(ctx)
	}
}

// chaos kills a daemon at random moments while it has runs in flight, and checks
// that each of them ends once, that whoever follows it sees each event once, and
// that nothing is left running.
func chaos(t *testing.T, s settings, kills int, tasks func(n int, chance *rand.Rand) nestor.Task, longest time.Duration) {
	chance := soak.Rand(t)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Minute)
	defer stop()
	client := s.client(t)
	p := s.start(t)
	var all []*witness
	var mu sync.Mutex // guards live
	live := 0
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	submit := func() {
		mu.Lock()
		missing := inFlight() - live
		mu.Unlock()
		for missing > 0 && ctx.Err() == nil {
			n := len(all)
			run, err := client.Submit(ctx, api.Submission{Task: tasks(n, chance), Key: fmt.Sprint("run ", n)})
			if errors.Is(err, api.ErrDisconnected) || errors.Is(err, api.ErrNoDaemon) {
				continue // with the same key
			}
			if err != nil {
				t.Fatal(err)
			}
			w := &witness{id: run.ID}
			all, missing = append(all, w), missing-1
			mu.Lock()
			live++
			mu.Unlock()
			watching.Go(func() {
				w.watch(ctx, client)
				mu.Lock()
				live--
				mu.Unlock()
			})
		}
	}
	for range kills {
		submit()
		select {
		case <-time.After(time.Duration(chance.Int64N(int64(longest)))):
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
		}
		p.kill()
		if left := leftovers(t, s.Dir); len(left) > 0 && !vanish(ctx, t, s.Dir) {
			t.Errorf("left running: %q", leftovers(t, s.Dir))
		}
		p = s.start(t)
	}
	watching.Wait()
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
	states := map[nestor.State]int{}
	for _, w := range all {
		if w.err != nil {
			t.Fatalf("run %s: %v", w.id, w.err)
		}
		run, err := client.Run(ctx, w.id)
		if err != nil {
			t.Fatal(err)
		}
		states[run.State]++
		if run.State != nestor.Success && run.Error.Kind != nestor.Interrupted {
			t.Errorf("run %s ended with %s: %v", w.id, run.State, run.Error)
		}
		var read []uint64
		ends := 0
		for e, err := range client.Events(ctx, w.id, api.EventsQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			if read = append(read, e.Head().Seq); isEnd(e) {
				ends++
			}
		}
		if ends != 1 || !slices.Equal(read, w.seen) {
			t.Errorf("run %s has %d ends; who followed it saw %v, the log has %v", w.id, ends, w.seen, read)
		}
	}
	p.stop(t)
	t.Logf("%d kills, %d runs: %v", kills, len(all), states)
	if left := leftovers(t, s.Dir); len(left) > 0 {
		t.Errorf("left running: %q", left)
	}
}

func isEnd(e nestor.Event) bool { _, end := e.(*nestor.ExecutionComplete); return end }

// vanish waits until no process of a run is left: what dies with the daemon takes
// a moment.
func vanish(ctx context.Context, t *testing.T, dir string) bool {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	for len(leftovers(t, dir)) > 0 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// place returns a folder whose socket is not named too long.
func place(t *testing.T) string {
	dir, err := os.MkdirTemp("", "nestor-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestKilledDaemonLosesNothing(t *testing.T) {
	model := scriptmodel.Start(t, chaosModel)
	s := settings{Dir: place(t), Script: chaosScript, URL: model.URL, Slots: inFlight()}
	chaos(t, s, soak.Of(5, 200), func(n int, chance *rand.Rand) nestor.Task {
		task := nestor.Task{Input: fmt.Sprint("task ", n), Provider: "scripted", Data: []byte(`{"permission_mode":"bypassPermissions"}`)}
		if chance.IntN(2) == 0 {
			task.Provider = "api"
		}
		return task
	}, 700*time.Millisecond)
}

func TestKilledDaemonLosesNothingOfTheCLI(t *testing.T) {
	cli := claudetest.Real(t)
	model := scriptmodel.Start(t, chaosModel)
	s := settings{Dir: place(t), Path: cli.Path, Env: slices.Concat(cli.Env, scriptmodel.ClientEnv(model.URL)), Slots: 4, Provider: "sdk"}
	chaos(t, s, soak.Of(1, 20), func(n int, _ *rand.Rand) nestor.Task {
		return nestor.Task{Input: fmt.Sprint("task ", n), Data: []byte(`{"permission_mode":"bypassPermissions"}`)}
	}, 3*time.Second)
}
