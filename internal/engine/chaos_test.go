package engine_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/soak"
)

const (
	chaosRoots = 3
	endurance  = 3 * time.Minute // of one round
)

// chaosTasks is how many children each root has, with dependencies; some have children too.
func chaosTasks() int { return soak.Of(15, 40) }

// wreck is a task in the chaos: what it does depends on its name alone, so that
// an attempt that begins anew does the same.
func wreck(ctx context.Context, x *engine.Execution) nestor.Result {
	name := x.Run().Task.Input
	h := fnv.New32a()
	h.Write([]byte(name))
	chance := rand.New(rand.NewPCG(uint64(h.Sum32()), 1))
	fail := func(err error) nestor.Result {
		return nestor.Result{Status: nestor.Error, Error: &nestor.Failure{Kind: nestor.Internal, Message: name + ": " + err.Error()}}
	}
	var ids []nestor.ID
	spawn := func(i int, after ...nestor.ID) error {
		depth := x.Run().Depth()
		limits := nestor.Limits{BudgetUSD: []float64{5, 1, 0.2, 0.04}[depth], Descendants: []int{20, 8, 3, 0}[depth]}
		id, err := x.Spawn(ctx, nestor.Task{Input: fmt.Sprint(name, ".", i), After: after, Limits: limits}, strconv.Itoa(i), 0.001)
		ids = append(ids, id)
		return err
	}
	if x.Run().Depth() == 0 {
		for i := range chaosTasks() {
			var after []nestor.ID
			for range chance.IntN(3) {
				if i > 0 {
					after = append(after, ids[chance.IntN(i)])
				}
			}
			if err := spawn(i, after...); err != nil {
				return fail(err)
			}
		}
		if _, err := x.Ask(ctx, nestor.Ask{AskID: "go on", Question: name}); err != nil {
			return fail(err)
		}
	} else if x.Run().Depth() < 4 && chance.IntN(10) < 3 {
		for i := range 1 + chance.IntN(2) {
			if err := spawn(i); err != nil {
				return fail(err)
			}
		}
	}
	if chance.IntN(5) == 0 && x.Run().Attempt == 1 {
		return failure(nestor.Connection)
	}
	runs, err := x.Await(ctx, ids...)
	if err != nil {
		return fail(err)
	}
	for _, run := range runs {
		if run.State != nestor.Success {
			return fail(errors.New("a child ended as " + string(run.State) + ": " + run.Result.Error.Error()))
		}
	}
	return nestor.Result{Status: nestor.Success, Output: name, CostUSD: 0.01}
}

// wreckage is a root in the chaos.
func wreckage(round, i int) engine.Submission {
	name := fmt.Sprint("root", round, ".", i)
	return engine.Submission{Key: name, Task: nestor.Task{Input: name, Limits: nestor.Limits{
		Depth: 4, Children: 100, Descendants: 1000, Resumes: 10_000, Backoff: 20 * time.Millisecond, Timeout: time.Hour, BudgetUSD: 1000,
	}}}
}

// endure submits trees through client, answers their questions, and returns them
// when they have ended.
func endure(t *testing.T, client *node, round int) (roots []nestor.ID) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), endurance)
	defer stop()
	for i := range chaosRoots {
		for {
			id, err := client.Submit(ctx, wreckage(round, i))
			if err == nil {
				roots = append(roots, id)
				break
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	for _, id := range roots {
		for {
			err := client.Answer(ctx, id, nestor.Answer{AskID: "go on", Decision: "allow", By: "ada"})
			if err == nil || errors.Is(err, nestor.ErrEnded) {
				break
			}
			if ctx.Err() != nil {
				run, _ := client.Get(context.Background(), id)
				t.Fatalf("%v; the root is %s, %+v", err, run.State, run.Wait)
			}
			select { // it has not asked yet, or the broker is away
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	for _, id := range roots {
		for {
			run, err := client.Wait(ctx, id)
			if err == nil {
				if run.State != nestor.Success {
					t.Errorf("a root ended as %s: %+v", run.State, run.Result.Error)
				}
				break
			}
			if ctx.Err() != nil {
				report(t, client, id, 0)
				t.Fatal(err)
			}
		}
	}
	return roots
}

// report tells what a tree waits for.
func report(t *testing.T, client *node, id nestor.ID, depth int) {
	run, err := client.Get(context.Background(), id)
	t.Logf("%s%s %s %s attempt %d fence %d worker %q wait %+v after %v: %v", strings.Repeat("  ", depth), id, run.Task.Input, run.State, run.Attempt, run.Fence, run.Worker, run.Wait, run.After, err)
	for _, child := range run.Live() {
		report(t, client, child, depth+1)
	}
}

// settled checks what must hold of trees that have ended: every run ended once,
// the log has no gap, and what was spent is what all of them spent.
func settled(t *testing.T, client *node, roots []nestor.ID) {
	t.Helper()
	total := 0
	for _, root := range roots {
		runs := map[nestor.ID]bool{root: true}
		for queue := []nestor.ID{root}; len(queue) > 0; queue = queue[1:] {
			run, err := client.Get(within(t), queue[0])
			if err != nil || !run.State.Ended() || run.State != nestor.Success {
				t.Errorf("%s is %s, %v", queue[0], run.State, err)
			}
			for child := range run.Children {
				runs[child] = true
				queue = append(queue, child)
			}
		}
		total += len(runs)
		client.events(t, root) // its end is in the log, and with it all that is below
		ends, next := map[string]int{}, map[string]uint64{}
		last := eventlog.Position(0)
		for e, err := range client.log.Read(within(t), eventlog.Filter{Root: string(root)}, 0) { // also what came behind the end
			if err != nil {
				t.Fatal(err)
			}
			if e.Position <= last || e.N != next[e.Run] {
				t.Fatalf("run %s: event %d at %d, after %d at %d", e.Run, e.N, e.Position, next[e.Run], last)
			}
			last, next[e.Run] = e.Position, e.N+1
			event, err := e.Decode()
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := event.(*nestor.ExecutionComplete); ok {
				ends[e.Run]++
			}
		}
		if len(ends) != len(runs) {
			t.Errorf("of %d runs %d ended in the log", len(runs), len(ends))
		}
		for id, n := range ends {
			if n != 1 || !runs[nestor.ID(id)] {
				t.Errorf("run %s ended %d times", id, n)
			}
		}
		run, err := client.Get(within(t), root)
		if err != nil || run.Used != len(runs)-1 {
			t.Errorf("%d descendants, %d accounted for, %v", len(runs)-1, run.Used, err)
		}
	}
	t.Logf("%d runs", total)
}

// follow reads the log while all this goes on, leaves now and then and comes back
// with its position, until every root has ended. It fails on a gap or a
// repetition.
func follow(t *testing.T, client *node) (done <-chan struct{}) {
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		next, ended := map[string]uint64{}, map[nestor.ID]bool{}
		var last eventlog.Position
		ctx, n := t.Context(), 0
		for len(ended) < chaosRoots {
			for e, err := range client.log.Follow(ctx, eventlog.Filter{}, last) {
				if err != nil {
					t.Errorf("following after %d: %v", last, err)
					return
				}
				if e.Position <= last || e.N != next[e.Run] {
					t.Errorf("a follower saw event %d of run %s at %d; it was at %d, and %d was next", e.N, e.Run, e.Position, last, next[e.Run])
					return
				}
				last, next[e.Run] = e.Position, e.N+1
				if event, err := e.Decode(); err == nil {
					if _, end := event.(*nestor.ExecutionComplete); end && e.Run == e.Root {
						ended[nestor.ID(e.Root)] = true
						break
					}
				}
				if n++; n%50 == 0 {
					break
				}
			}
		}
	}()
	return finished
}

// reap has kill called most times, with some time in between, unless done is
// closed first, and tells how often it was.
func reap(chance *rand.Rand, most int, longest time.Duration, done <-chan struct{}, kill func()) <-chan int {
	killed := make(chan int, 1)
	go func() {
		n := 0
		defer func() { killed <- n }()
		for ; n < most; n++ {
			select {
			case <-done:
				return
			case <-time.After(50*time.Millisecond + time.Duration(chance.Int64N(int64(longest)))):
			}
			kill()
		}
	}()
	return killed
}

// suffer runs trees, while some of what runs them is killed, until enough has
// been, and checks each.
func suffer(t *testing.T, chance *rand.Rand, client *node, enough, most int, longest time.Duration, kill func()) {
	for round, killed := 0, 0; killed < enough; round++ {
		done := make(chan struct{})
		n := reap(chance, min(most, enough-killed), longest, done, kill)
		var followed <-chan struct{}
		if round == 0 {
			followed = follow(t, client)
		}
		roots := endure(t, client, round)
		close(done)
		killed += <-n
		settled(t, client, roots)
		if followed != nil {
			<-followed
		}
		t.Logf("round %d: %d kills so far", round, killed)
	}
}

// A daemon that is killed again and again gets its trees to their end.
func TestChaosEmbedded(t *testing.T) { chaosEmbedded(t, soak.Of(5, 200)) }

// So does one that has given up most of what it asks for when the answer comes, as on a
// machine that is far too busy: what it wrote stands all the same.
func TestChaosImpatient(t *testing.T) { chaosEmbedded(t, soak.Of(2, 100), "TRY_FOR=8ms") }

// So does one whose trees layout 5 has made, with documents in all buckets.
func TestChaosScattered(t *testing.T) { chaosEmbedded(t, soak.Of(2, 100), "SCATTER=1") }

func chaosEmbedded(t *testing.T, enough int, env ...string) {
	port := freePorts(t, 1)[0]
	d := start(t, "daemon", append(env, "DIR="+t.TempDir(), "PORT="+strconv.Itoa(port), "CHAOS=1")...)
	d.expect("ready")
	client := open(t, dial(t, url(port)), engine.Options{}, asker, nil)
	suffer(t, soak.Rand(t), client, enough, 20, 500*time.Millisecond, func() {
		d.restart()
		<-d.ready() // or it would never get to anything
	})
}

// solitary is an engine that is alone: it submits trees, unless one before it has, sees
// them to their end, and says so.
func solitary() error {
	ctx := context.Background()
	engine.Scatter(os.Getenv("SCATTER") != "")
	_, e, err := aloneHere(10, wreck)
	if err != nil {
		return err
	}
	var roots []nestor.ID
	for i := range chaosRoots {
		id, err := e.Submit(ctx, wreckage(0, i))
		if err != nil {
			return err
		}
		roots = append(roots, id)
	}
	for _, id := range roots {
		for {
			err := e.Answer(ctx, id, nestor.Answer{AskID: "go on", Decision: "allow", By: "ada"})
			if err == nil || errors.Is(err, nestor.ErrEnded) {
				break
			}
			time.Sleep(10 * time.Millisecond) // it has not asked yet
		}
	}
	for _, id := range roots {
		if _, err := e.Wait(ctx, id); err != nil {
			return err
		}
	}
	fmt.Println("ended")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// One that is alone, and hands runs to its own slots, gets them to their end too, with
// trees of either shape.
func TestChaosAlone(t *testing.T) {
	chance := soak.Rand(t)
	for round, killed, enough := 0, 0, soak.Of(5, 300); killed < enough; round++ {
		dir := t.TempDir()
		env := []string{"DIR=" + dir}
		if round%2 == 1 {
			env = append(env, "SCATTER=1")
		}
		p := start(t, "solitary", env...)
		killed += outlive(t, chance, p, min(10, enough-killed))
		p.kill()
		b := embedded(t, dir)
		n := open(t, b, private, 0, nil)
		var roots []nestor.ID
		for i := range chaosRoots {
			id, err := n.Submit(within(t), wreckage(0, i)) // which it is
			if err != nil {
				t.Fatal(err)
			}
			roots = append(roots, id)
		}
		settled(t, n, roots)
		n.stop()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: %d kills so far", round, killed)
	}
}

// outlive kills a process up to so many times before it says that it is through, and
// tells how often.
func outlive(t *testing.T, chance *rand.Rand, p *process, most int) (killed int) {
	t.Helper()
	for {
		lasts := endurance // the last one takes its time
		if killed < most {
			lasts = time.Duration(chance.Int64N(int64(400 * time.Millisecond)))
		}
		select {
		case _, ok := <-p.lines:
			if !ok {
				t.Fatal("it ended by itself")
			}
			return killed
		case <-time.After(lasts):
			if killed == most {
				p.cmd.Process.Signal(syscall.SIGQUIT) // it says where it is
				p.cmd.Wait()
				t.Fatal("its trees do not end")
			}
			p.restart()
			killed++
		}
	}
}

// Servers and workers of a cluster that are killed at random, each in its turn:
// the trees get to their end.
func TestChaosCluster(t *testing.T) {
	chance := soak.Rand(t)
	s := cluster(t)
	all := s.servers
	for i := range 2 {
		all = append(all, start(t, "worker", "URLS="+strings.Join(s.urls, ","), "NAME=w"+strconv.Itoa(i), "CHAOS=1"))
	}
	client := open(t, s.connect(t), short, 0, nil)
	suffer(t, chance, client, soak.Of(2, 60), 5, 1500*time.Millisecond, func() {
		victim := all[chance.IntN(len(all))]
		victim.restart()
		// The next one dies when this one is back: two servers of three that are
		// away at once are not what is promised to be survived without a stop.
		<-victim.ready()
	})
}
