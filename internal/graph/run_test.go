package graph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dfaf701a/nestor"
)

// fakeHost runs tasks by a function.
type fakeHost struct {
	do func(task nestor.Task) nestor.Result // may be called by many at once

	mu      sync.Mutex
	started []string // keys, in order
	tasks   map[nestor.ID]nestor.Task
	kept    map[string]Kept // nil keeps nothing
	said    []string
	live    int
	most    int
	refuse  error // of Start
}

func (h *fakeHost) Start(_ context.Context, key, _ string, task nestor.Task) (nestor.ID, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse != nil {
		return "", h.refuse
	}
	h.started = append(h.started, key)
	if h.tasks == nil {
		h.tasks = map[nestor.ID]nestor.Task{}
	}
	id := nestor.ID(key)
	h.tasks[id] = task
	h.live++
	h.most = max(h.most, h.live)
	return id, nil
}

func (h *fakeHost) Await(ctx context.Context, run nestor.ID) (nestor.Result, error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nestor.Result{}, context.Cause(ctx)
	}
	h.mu.Lock()
	task := h.tasks[run]
	h.live--
	h.mu.Unlock()
	return h.do(task), nil
}

func (h *fakeHost) Recall(_ context.Context, _ nestor.Node, task nestor.Task) (string, *Kept, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.kept == nil {
		return "", nil, nil
	}
	if k, ok := h.kept[task.Input]; ok {
		return task.Input, &k, nil
	}
	return task.Input, nil, nil
}

func (h *fakeHost) Remember(_ context.Context, hash string, k Kept) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept[hash] = k
	return nil
}

func (h *fakeHost) Say(_ context.Context, what string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, what)
	return nil
}

// answer gives files to whoever asks for them, fails for what is to fail, and
// repeats the rest.
func answer(task nestor.Task) nestor.Result {
	switch {
	case strings.Contains(task.Input, "fail"):
		return nestor.Result{Status: nestor.Error, Error: &nestor.Failure{Kind: nestor.Provider, Message: "no"}}
	case task.Schema != nil:
		return nestor.Result{Status: nestor.Success, Structured: json.RawMessage(`{"files":[{"name":"a"},{"name":"b"},{"name":"c"}]}`)}
	}
	return nestor.Result{Status: nestor.Success, Output: "<" + task.Input + ">"}
}

func run(t *testing.T, source string, o Options, h *fakeHost) (map[string]Outcome, nestor.Result) {
	t.Helper()
	g := parse(t, source)
	if h.do == nil {
		h.do = answer
	}
	outcomes, err := Run(t.Context(), g, o, h)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes, Result(g, outcomes)
}

func TestAGraphRunsInOrderAndHandsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHost{}
		began := time.Now()
		outcomes, result := run(t, reviews, Options{}, h)
		if want := []string{"plan", "review/0", "review/1", "review/2", "sum"}; !slices.Equal(slices.Sorted(slices.Values(h.started)), want) || h.started[0] != "plan" || h.started[4] != "sum" {
			t.Errorf("started %v", h.started)
		}
		if h.most != 2 {
			t.Errorf("%d runs at once: two reviews are allowed", h.most)
		}
		if took := time.Since(began); took != 4*time.Second { // plan, two and one reviews, sum
			t.Errorf("it took %v", took)
		}
		want := `<Sum up: ["<Review a (${index} is 0).>","<Review b (${index} is 1).>","<Review c (${index} is 2).>"]>`
		if result.Status != nestor.Success || result.Output != want {
			t.Errorf("result %s: %s", result.Status, result.Output)
		}
		if len(outcomes["review"].Runs) != 3 {
			t.Errorf("review took %v", outcomes["review"].Runs)
		}
	})
}

func TestWhatAFailureMeans(t *testing.T) {
	for name, test := range map[string]struct {
		tasks  string
		want   map[string]Status
		status nestor.State
		output string
	}{
		"fail": {
			"a: {input: fail}, b: {input: 'x ${a.output}'}, c: {input: y}, c2: {input: 'z ${c.output}'}, d: {input: 'z ${c2.output}'}",
			map[string]Status{"a": Failed, "b": Skipped, "c": Done, "d": Skipped}, nestor.Error, `{"b":null,"d":null}`,
		},
		"skip": {
			"a: {input: fail, on_error: skip}, b: {input: 'x ${a.output}'}, c: {input: y}, d: {input: 'z ${c.output}'}",
			map[string]Status{"a": Failed, "b": Skipped, "c": Done, "d": Done}, nestor.Success, `{"b":null,"d":"<z <y>>"}`,
		},
		"continue": {
			"a: {input: fail, on_error: continue}, b: {input: 'x ${a.output} ${a.status}'}",
			map[string]Status{"a": Failed, "b": Done}, nestor.Success, "<x null error>",
		},
		"an item": {
			"a: {input: y, schema: {type: object}}, b: {foreach: '${a.output.files}', input: 'fail ${item.name}', on_error: continue}, c: {input: '${b.output}'}",
			map[string]Status{"a": Done, "b": Failed, "c": Done}, nestor.Success, "<[null,null,null]>",
		},
		"after what was skipped": {
			"a: {input: x, when: 'false'}, b: {input: y, after: [a]}, c: {input: z, after: [a], when: '${a.status} == \"skipped\"'}",
			map[string]Status{"a": Skipped, "b": Skipped, "c": Done}, nestor.Success, `{"b":null,"c":"<z>"}`,
		},
		"a field that is not there": {
			"a: {input: y, schema: {type: object}}, b: {input: '${a.output.no}'}",
			map[string]Status{"a": Done, "b": Failed}, nestor.Error, "",
		},
		"no list": {
			"a: {input: y}, b: {input: x, foreach: '${a.output}'}",
			map[string]Status{"a": Done, "b": Failed}, nestor.Error, "",
		},
		"too many items": {
			"a: {input: y, schema: {type: object}}, b: {input: x, foreach: '${a.output.files}', max_items: 2}",
			map[string]Status{"a": Done, "b": Failed}, nestor.Error, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outcomes, result := run(t, "tasks: {"+test.tasks+"}", Options{}, &fakeHost{})
				for task, want := range test.want {
					if outcomes[task].Status != want {
						t.Errorf("task %s is %s (%s), want %s", task, outcomes[task].Status, outcomes[task].Error, want)
					}
				}
				if result.Status != test.status || result.Output != test.output {
					t.Errorf("result %s %s (%v), want %s %s", result.Status, result.Output, result.Error, test.status, test.output)
				}
			})
		})
	}
}

func TestATaskIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		tries := 0
		h := &fakeHost{do: func(task nestor.Task) nestor.Result {
			mu.Lock()
			defer mu.Unlock()
			if tries++; tries < 3 {
				return nestor.Result{Status: nestor.Error, Error: &nestor.Failure{Kind: nestor.Provider, Message: "not yet"}}
			}
			return nestor.Result{Status: nestor.Success, Output: "done"}
		}}
		_, result := run(t, "tasks: {a: {input: x, retry: 2}}", Options{}, h)
		if result.Output != "done" || !slices.Equal(h.started, []string{"a", "a#2", "a#3"}) {
			t.Errorf("%s after %v", result.Output, h.started)
		}
	})
}

func TestNothingIsDoneTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		b.WriteString("tasks:\n  t0: {input: begin}\n")
		for i := 1; i < 20; i++ {
			fmt.Fprintf(&b, "  t%d: {input: 'step %d of ${t%d.output}'}\n", i, i, (i-1)/2)
		}
		source := b.String()
		h := &fakeHost{kept: map[string]Kept{}}
		run(t, source, Options{}, h)
		if len(h.started) != 20 {
			t.Fatalf("%d runs for 20 tasks", len(h.started))
		}
		h.started = nil
		if _, result := run(t, source, Options{}, h); len(h.started) != 0 || result.Status != nestor.Success {
			t.Errorf("the same graph again starts %v", h.started)
		}
		changed := strings.Replace(source, "'step 4 of", "'another step 4 of", 1)
		run(t, changed, Options{}, h)
		// 9 and 10 come after 4, and 19 after 9.
		if want := []string{"t10", "t19", "t4", "t9"}; !slices.Equal(slices.Sorted(slices.Values(h.started)), want) {
			t.Errorf("with task 4 changed %v are run; want %v", h.started, want)
		}
		h.started = nil
		if run(t, source, Options{Fresh: true}, h); len(h.started) != 20 {
			t.Errorf("%d fresh runs for 20 tasks", len(h.started))
		}
	})
}

func TestNoMoreRunsThanThereIsRoomFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		b.WriteString("tasks:\n")
		for i := range 30 {
			fmt.Fprintf(&b, "  t%d: {input: x%d}\n", i, i)
		}
		h := &fakeHost{}
		run(t, b.String(), Options{Parallel: 3}, h)
		if h.most != 3 || len(h.started) != 30 {
			t.Errorf("%d runs at once, %d in all", h.most, len(h.started))
		}
	})
}

func TestAHostThatFailsEndsTheGraph(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		g := parse(t, reviews)
		if _, err := Run(t.Context(), g, Options{}, &fakeHost{do: answer, refuse: broken}); !errors.Is(err, broken) || !strings.Contains(err.Error(), `task "plan"`) {
			t.Errorf("%v", err)
		}
		limit := &nestor.LimitError{Limit: "children", Max: 1, Asked: 1}
		outcomes, err := Run(t.Context(), g, Options{}, &fakeHost{do: answer, refuse: limit})
		if err != nil || outcomes["plan"].Status != Failed || !strings.Contains(outcomes["plan"].Error, "children") {
			t.Errorf("%v, %v: a refusal is the task's", outcomes["plan"], err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		time.AfterFunc(1500*time.Millisecond, func() { cancel(cause) })
		if _, err := Run(ctx, g, Options{}, &fakeHost{do: answer}); !errors.Is(err, cause) {
			t.Errorf("%v", err)
		}
	})
}
