package nestor_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
)

func TestIDsSortByTime(t *testing.T) {
	at := time.Date(2026, 11, 15, 12, 0, 0, 5e6, time.UTC)
	var ids []nestor.ID
	for i := range 100 {
		ids = append(ids, nestor.NewID(at.Add(time.Duration(i)*time.Millisecond)))
	}
	if !slices.IsSorted(ids) {
		t.Errorf("they do not: %v", ids)
	}
	for _, id := range ids[:1] {
		if back, err := nestor.ParseID(string(id)); err != nil || back != id || !back.Time().Equal(at) {
			t.Errorf("%s: %v, %v", id, back.Time(), err)
		}
		if b, err := id.Bytes(); err != nil || nestor.IDFrom(b) != id {
			t.Errorf("the bytes of %s are %x, %v", id, b, err)
		}
	}
}

func TestWrongIDs(t *testing.T) {
	for _, text := range []string{"", "x", "0199d3a2-7c1e-7b0a-8f3e-5a1c2b3d4e5", "0199D3A2-7c1e-7b0a-8f3e-5a1c2b3d4e5f", "../../../../../../../../etc/passwd..", "0199d3a2.7c1e-7b0a-8f3e-5a1c2b3d4e5f", strings.Repeat("-", 36)} {
		if id, err := nestor.ParseID(text); err == nil || !strings.Contains(err.Error(), "want a UUID") {
			t.Errorf("%q is %q, %v", text, id, err)
		}
		if b, err := nestor.ID(text).Bytes(); err == nil {
			t.Errorf("the bytes of %q are %x", text, b)
		}
	}
}

func TestGraphOrder(t *testing.T) {
	node := func(after ...string) nestor.Node { return nestor.Node{After: after} }
	for _, test := range []struct {
		tasks map[string]nestor.Node
		want  string
	}{
		{map[string]nestor.Node{"c": node("a", "b"), "b": node("a"), "a": node(), "d": node()}, "a b c d"},
		{map[string]nestor.Node{"a": node("b")}, `task "a" comes after "b", which is not in the graph`},
		{map[string]nestor.Node{"a": node("a")}, `tasks that wait for each other: ["a" "a"]`},
		{map[string]nestor.Node{"a": node("b"), "b": node("c"), "c": node("b")}, `tasks that wait for each other: ["b" "c" "b"]`},
	} {
		order, err := nestor.Graph{Tasks: test.tasks}.Order()
		got := strings.Join(order, " ")
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%v: %s, want %s", test.tasks, got, test.want)
		}
	}
}

func TestWrongTasks(t *testing.T) {
	for _, test := range []struct {
		task nestor.Task
		want string
	}{
		{nestor.Task{Priority: "urgent"}, `priority "urgent": there are high, normal and low`},
		{nestor.Task{Label: "a.b"}, `label "a.b"`},
		{nestor.Task{Label: strings.Repeat("a", 61)}, "60 characters"},
		{nestor.Task{After: []nestor.ID{"x"}}, `after "x": want a UUID`},
		{nestor.Task{Schema: []byte("{")}, "schema: not JSON"},
		{nestor.Task{Limits: nestor.Limits{Turns: -1}}, "max_turns is -1"},
		{nestor.Task{Limits: nestor.Limits{BudgetUSD: math.NaN()}}, "max_budget_usd is NaN"},
		{nestor.Task{Limits: nestor.Limits{BudgetUSD: math.Inf(1)}}, "max_budget_usd is +Inf"},
	} {
		if err := test.task.Check(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", test.task, err)
		}
	}
	if err := (&nestor.Task{Label: "gpu-1", Priority: nestor.High}).Check(); err != nil {
		t.Error(err)
	}
}

func TestLimitsLeftOpen(t *testing.T) {
	got := nestor.Limits{Turns: 3, BudgetUSD: 1}.Or(nestor.DefaultLimits())
	want := nestor.DefaultLimits()
	want.Turns, want.BudgetUSD = 3, 1
	if got != want {
		t.Errorf("they are %+v", got)
	}
}

// A failure says its kind once.
func TestFailureSaysItsKindOnce(t *testing.T) {
	for message, want := range map[string]string{
		"all is spent":                      "budget: all is spent",
		"budget: 2 USD spent of 1":          "budget: 2 USD spent of 1",
		"budget by ada: 2 USD spent":        "budget by ada: 2 USD spent",
		"budgets are not what they used to": "budget: budgets are not what they used to",
		"":                                  "budget: ",
	} {
		if got := (&nestor.Failure{Kind: nestor.Budget, Message: message}).Error(); got != want {
			t.Errorf("%q is said as %q, want %q", message, got, want)
		}
	}
}
