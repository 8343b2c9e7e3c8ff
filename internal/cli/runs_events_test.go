package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// someEvents are one of each type.
func someEvents() []nestor.Event {
	id, child := testID(1), testID(2)
	events := []nestor.Event{
		&nestor.RunQueued{Agent: "planner", Reason: "for a slot"},
		&nestor.ExecutionStart{Workspace: "/p", Attempt: 1},
		&nestor.ChatStart{Message: "Plan\nit."},
		&nestor.AgentStart{Agent: "planner"},
		&nestor.AgentDelta{Delta: "I "},
		&nestor.AgentComplete{Content: "I \x1b[31mplan."},
		&nestor.ThinkingStart{},
		&nestor.ThinkingDelta{Delta: "Hm"},
		&nestor.ThinkingComplete{Thinking: "Hm."},
		&nestor.ToolStart{Tool: "Bash", Description: "list files"},
		&nestor.ToolStart{Tool: "Bash", Input: json.RawMessage(`{"command":"ls"}`)},
		&nestor.ToolComplete{Tool: "Bash", Success: true, Summary: "a b"},
		&nestor.ToolComplete{Tool: "Bash"},
		&nestor.ProviderMessage{Raw: json.RawMessage(`{"x":1}`)},
		&nestor.ErrorEvent{Kind: nestor.Connection, Message: "reset"},
		&nestor.Lease{Child: child, Granted: 0.5},
		&nestor.AgentSpawn{Agent: "tester", Description: "run tests", Child: child},
		&nestor.RunWaiting{Wait: nestor.Wait{For: nestor.ForChildren, Runs: []nestor.ID{child}}},
		&nestor.Lease{Child: child, Granted: 0.5, Spent: 0.1, Returned: 0.4},
		&nestor.RunResumed{Reason: "all children ended"},
		&nestor.ExecutionProgress{Progress: 0.5, Activity: "writing"},
		&nestor.ExecutionProgress{Turns: 2, CostUSD: 0.5},
		&nestor.WorkspaceWrite{Path: "a.go", Action: "write"},
		&nestor.Ask{AskID: "q1", Tool: "Bash", Question: "May I?"},
		&nestor.Answer{AskID: "q1", Decision: "allow", By: "me"},
		&nestor.Letter{From: "a", To: "b", Content: "hi"},
		&nestor.RunRetry{Attempt: 2, At: noon, Reason: "reset"},
		&nestor.RunCancelled{Cause: nestor.Cause{Kind: nestor.Stopped, By: "me", Reason: "enough"}},
		&nestor.ChatComplete{},
		&nestor.UnknownEvent{Type: "news", Raw: json.RawMessage(`{"type":"news"}`)},
		&nestor.ExecutionComplete{Status: nestor.Partial, CostUSD: 0.25, Error: &nestor.Failure{Kind: nestor.Turns, Message: "25 of 25"}},
		&nestor.ExecutionComplete{Status: nestor.Success, ResultSummary: "done"},
	}
	for i, e := range events {
		*e.Head() = nestor.Header{Time: noon.Add(time.Duration(i) * time.Second), Run: id, Root: id}
	}
	return events
}

func TestRunsEvents(t *testing.T) {
	var b bytes.Buffer
	d := &runsDaemon{events: someEvents()}
	err := runsEvents(t.Context(), d.dial(t), runsPage{w: &b, now: noon}, string(testID(1)), runsEventsOptions{})
	golden(t, &b, err, `
2026-03-04T12:00:00.000Z  00000001  queued for a slot
2026-03-04T12:00:01.000Z  00000001  attempt 1 begins /p
2026-03-04T12:00:02.000Z  00000001  told: Plan it.
2026-03-04T12:00:03.000Z  00000001  agent planner begins
2026-03-04T12:00:04.000Z  00000001  I
2026-03-04T12:00:05.000Z  00000001  says: I plan.
2026-03-04T12:00:06.000Z  00000001  thinks
2026-03-04T12:00:07.000Z  00000001  Hm
2026-03-04T12:00:08.000Z  00000001  thought: Hm.
2026-03-04T12:00:09.000Z  00000001  calls Bash: list files
2026-03-04T12:00:10.000Z  00000001  calls Bash {"command":"ls"}
2026-03-04T12:00:11.000Z  00000001  Bash returned: a b
2026-03-04T12:00:12.000Z  00000001  Bash returned an error
2026-03-04T12:00:13.000Z  00000001  provider: {"x":1}
2026-03-04T12:00:14.000Z  00000001  error connection: reset
2026-03-04T12:00:15.000Z  00000001  grants 00000002 $0.50
2026-03-04T12:00:16.000Z  00000001  starts 00000002 tester run tests
2026-03-04T12:00:17.000Z  00000001  waits for children 00000002
2026-03-04T12:00:18.000Z  00000001  00000002 spent $0.10 and gave back $0.40
2026-03-04T12:00:19.000Z  00000001  goes on all children ended
2026-03-04T12:00:20.000Z  00000001  50% writing
2026-03-04T12:00:21.000Z  00000001  2 turns, $0.50 so far
2026-03-04T12:00:22.000Z  00000001  write a.go
2026-03-04T12:00:23.000Z  00000001  asks q1: May I? Bash
2026-03-04T12:00:24.000Z  00000001  answer to q1: allow by me
2026-03-04T12:00:25.000Z  00000001  letter from a to b: hi
2026-03-04T12:00:26.000Z  00000001  attempt 2 at 12:00:00Z reset
2026-03-04T12:00:27.000Z  00000001  is to end: cancelled by me: enough
2026-03-04T12:00:28.000Z  00000001  answered, without success
2026-03-04T12:00:29.000Z  00000001  news {"depth":0,"root":"0199d3a2-7c1e-7b0a-8f3e-5a1c00000001","run":"0199d3a2-7c1e-7b0a-8f3e-5a1c00000001","time":"2026-03-04T12:00:29Z","type":"news"}
2026-03-04T12:00:30.000Z  00000001  ended: partial, $0.25, turns: 25 of 25
2026-03-04T12:00:31.000Z  00000001  ended: success, $0.00: done
`)
}

func TestRunsEventsForPeople(t *testing.T) {
	var b bytes.Buffer
	d := &runsDaemon{events: someEvents()[30:]}
	err := runsEvents(t.Context(), d.dial(t), runsPage{w: &b, now: noon, person: true, colour: true}, string(testID(1)), runsEventsOptions{})
	golden(t, &b, err, strings.ReplaceAll(`
^[2m12:00:30^[0m  ^[2m00000001^[0m  ^[33mended: partial, $0.25, turns: 25 of 25^[0m
^[2m12:00:31^[0m  ^[2m00000001^[0m  ^[32mended: success, $0.00: done^[0m
`, "^", "\x1b"))
}

func TestRunsEventsAsJSON(t *testing.T) {
	d := &runsDaemon{events: someEvents()}
	dial := d.dial(t)
	read := func(text []byte) (seqs []uint64) {
		e, err := nestor.DecodeEvent(text)
		if err != nil {
			t.Fatal(err)
		}
		return append(seqs, e.Head().Seq)
	}
	var b bytes.Buffer
	if err := runsEvents(t.Context(), dial, runsPage{w: &b}, string(testID(1)), runsEventsOptions{asJSON: true}); err != nil {
		t.Fatal(err)
	}
	var document struct{ Events []json.RawMessage }
	if err := json.Unmarshal(b.Bytes(), &document); err != nil {
		t.Fatalf("%v in %s", err, &b)
	}
	var whole, lines []uint64
	for _, text := range document.Events {
		whole = append(whole, read(text)...)
	}
	b.Reset()
	if err := runsEvents(t.Context(), dial, runsPage{w: &b}, string(testID(1)), runsEventsOptions{streamJSON: true}); err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b.Bytes()) {
		lines = append(lines, read(line)...)
	}
	if len(whole) != len(d.events) || whole[0] != 1 || !slices.Equal(whole, lines) {
		t.Errorf("positions %v as a document, %v as lines", whole, lines)
	}
	b.Reset()
	err := runsEvents(t.Context(), (&runsDaemon{}).dial(t), runsPage{w: &b}, string(testID(1)), runsEventsOptions{asJSON: true})
	golden(t, &b, err, "{\"events\": []}\n")
}

func TestFollowGoesOnWhenTheDaemonComesBack(t *testing.T) {
	d := &runsDaemon{events: someEvents(), cut: 5}
	var seqs []uint64
	err := follow(t.Context(), d.dial(t), string(testID(1)), api.EventsQuery{Follow: true}, func(e nestor.Event) error {
		seqs = append(seqs, e.Head().Seq)
		return nil
	})
	if err != nil || len(seqs) != len(d.events) || !slices.IsSorted(seqs) {
		t.Errorf("got %v, %v", seqs, err)
	}

	nobody := func(context.Context) (*link, error) { return nil, api.ErrNoDaemon }
	err = follow(t.Context(), nobody, string(testID(1)), api.EventsQuery{After: 7}, nil)
	if !errors.Is(err, api.ErrNoDaemon) || !strings.HasSuffix(err.Error(), "; go on with --after 7") {
		t.Errorf("got %v", err)
	}
}

func TestConnectionsInWords(t *testing.T) {
	for want, e := range map[string]*nestor.NetworkDial{
		"connected to go.dev:443 by host go.dev: 10 bytes out, 20 in, 1.5s":                   {Host: "go.dev", Port: 443, Allowed: true, Rule: "host go.dev", Sent: 10, Received: 20, Millis: 1500},
		"connected to [::1]:80 by own [::1]:80: 0 bytes out, 0 in, 0s connection refused":     {Host: "::1", Port: 80, Allowed: true, Rule: "own [::1]:80", Reason: "connection refused"},
		"refuses a connection to evil.org:80 by hosts: evil.org:80 is not among them":         {Host: "evil.org", Port: 80, Rule: "hosts", Reason: "evil.org:80 is not among them"},
		"refuses a connection by request: it is no HTTP request: malformed HTTP request \x05": {Rule: "request", Reason: "it is no HTTP request: malformed HTTP request \x05"},
	} {
		if got := eventText(e); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
