package engine

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/plan"
)

// A document is the JSON that it would be by itself, whatever it commands.
func TestDocumentIsJSON(t *testing.T) {
	id := nestor.NewID(time.Now())
	run, commands, err := plan.Decide(plan.Run{}, plan.Start{
		Attempt: 1, Delivery: "<&>\u2028", New: true, Submit: &plan.Submit{ID: id, Task: nestor.Task{Input: "<b>\u2028\n&"}},
	}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, outbox := range [][]batch{nil, {{Serial: 1, Commands: commands}}, {{Serial: 1}, {Serial: 2, Commands: append(commands, plan.Tell{Run: id, Input: plan.Timer{}})}}} {
		d := document{Run: run, Serial: 7, Outbox: outbox}
		got, err := d.encode()
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
