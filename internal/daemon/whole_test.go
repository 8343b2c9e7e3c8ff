package daemon_test

import (
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/daemon"
)

// A limit of zero is none for a task that says all its limits, whoever has the project.
// What bounds its rights does so in any case.
func TestWholeTasks(t *testing.T) {
	s := settings{Dir: place(t), Provider: "scripted", Script: `turns: [{when: '(.*)', say: [{text: done}]}]`}
	client, _ := serving(t, s, func(o *daemon.Options) {
		o.Limits = nestor.Limits{Turns: 7, BudgetUSD: 1, Silence: time.Hour, LimitWait: time.Hour}
	})
	for data, want := range map[string]nestor.Limits{
		`{"whole":true}`: {Turns: 25},
		`{}`:             {Turns: 7, BudgetUSD: 1, Silence: time.Hour, LimitWait: time.Hour},
	} {
		l := finish(t, client, nestor.Task{Input: "go", Data: []byte(data)}).Limits
		if got := (nestor.Limits{Turns: l.Turns, BudgetUSD: l.BudgetUSD, Silence: l.Silence, LimitWait: l.LimitWait}); got != want {
			t.Errorf("%s: its limits are %+v, want %+v", data, got, want)
		}
	}
}
