package claudecode

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

func TestProviderIsFoundByItsType(t *testing.T) {
	p := New(Options{})
	providers, err := agent.NewProviders(p)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := providers.Get("sdk"); got != agent.Provider(p) || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	a := create(t, fake("busy"), agent.Config{Name: "ada"})
	if a.Name() != "ada" || a.Type() != "sdk" {
		t.Errorf("it is %s of type %s", a.Name(), a.Type())
	}
	if state, since := a.State(); state != agent.Idle || since.IsZero() {
		t.Errorf("it is %s since %v", state, since)
	}
}

// states are the states of an agent that another goroutine saw, in order.
type states []string

func (s *states) note(a agent.Agent) {
	seen := make(chan agent.State)
	go func() {
		state, _ := a.State()
		seen <- state
	}()
	if state := string(<-seen); len(*s) == 0 || (*s)[len(*s)-1] != state {
		*s = append(*s, state)
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		prompt string
		during func(a agent.Agent, stop context.CancelFunc) // at the first message
		want   string
	}{
		{"success", "push", nil, "idle processing idle"},
		{"error", "die", nil, "idle processing failed"},
		{"cancel", "work", func(_ agent.Agent, stop context.CancelFunc) { stop() }, "idle processing idle"},
		{"shutdown", "work", func(a agent.Agent, _ context.CancelFunc) {
			ctx, stop := context.WithCancel(context.Background())
			stop()
			a.Shutdown(ctx) // begins it
		}, "idle processing terminated"},
	} {
		for _, mode := range []string{"query", "client"} {
			t.Run(test.name+" "+mode, func(t *testing.T) {
				script := "busy"
				if test.prompt == "die" {
					script = "mortal"
				}
				a := create(t, fake(script), agent.Config{Credentials: map[string]string{"mode": mode}})
				ctx, cancel := context.WithCancel(bounded(t))
				defer cancel()
				var seen states
				seen.note(a)
				for range a.Handle(ctx, agent.NewMessage("tester", test.prompt)) {
					seen.note(a)
					if test.during != nil {
						test.during(a, cancel)
					}
				}
				seen.note(a)
				if got := strings.Join(seen, " "); got != test.want {
					t.Errorf("the states were %s, want %s", got, test.want)
				}
			})
		}
	}
}

func TestFailedAgentCanGoOn(t *testing.T) {
	t.Parallel()
	a := create(t, fake("mortal"), agent.Config{})
	if _, err := say(t, bounded(t), a, "die"); err == nil {
		t.Fatal("it did not die")
	}
	answer(t, a, "hello")
	if state, _ := a.State(); state != agent.Idle {
		t.Errorf("it is %s", state)
	}
}

func TestCancelKeepsTheCause(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"query", "client"} {
		a := create(t, fake("busy"), agent.Config{Credentials: map[string]string{"mode": mode}})
		reason := errors.New("changed my mind")
		ctx, stop := context.WithCancelCause(bounded(t))
		defer stop(nil)
		var last error
		results := 0
		for m, err := range a.Handle(ctx, agent.NewMessage("tester", "work")) {
			stop(reason)
			last = err
			if m.Metadata["sdk_type"] == "result" && m.Metadata["interrupted"] == true {
				results++
			}
		}
		if last != reason {
			t.Errorf("%s: it ended with %v", mode, last)
		}
		if results != 1 {
			t.Errorf("%s: what it was until then was told %d times", mode, results)
		}
		if got := answer(t, a, "still there?"); got != "still there?" {
			t.Errorf("%s: afterwards it answers %q", mode, got)
		}
	}
}

// Cancelled before the CLI is ready.
func TestCancelDuringStart(t *testing.T) {
	t.Parallel()
	path, env := claudetest.Fake("mute")
	a, err := New(Options{Path: path, Env: env}).Create(t.Context(), client(agent.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(bounded(t))
	defer stop()
	opts := &a.(*cliAgent).opts
	opts.Grace = 100 * time.Millisecond // it does not end by itself
	opts.Stderr = func(string) { stop() }
	if _, err := say(t, ctx, a, "hello"); err != context.Canceled {
		t.Errorf("it ended with %v", err)
	}
	if err := a.Shutdown(bounded(t)); err != nil {
		t.Error(err)
	}
}

func TestBreakLeavesTheAgentUsable(t *testing.T) {
	t.Parallel()
	a := create(t, fake("busy"), client(agent.Config{}))
	for range a.Handle(bounded(t), agent.NewMessage("tester", "work")) {
		break
	}
	session := a.(*cliAgent).session
	if got := answer(t, a, "still there?"); got != "still there?" || session == nil || session != a.(*cliAgent).session {
		t.Errorf("afterwards it answers %q, by the same CLI: %v", got, session == a.(*cliAgent).session)
	}
}

// Breaking out ends background work too; the conversation goes on.
func TestBreakEndsBackgroundWork(t *testing.T) {
	t.Parallel()
	a := create(t, fake("background"), client(agent.Config{}))
	for m, err := range a.Handle(bounded(t), agent.NewMessage("tester", "delegate")) {
		if err != nil || m.Metadata["sdk_type"] == "result" {
			break
		}
	}
	if got := answer(t, a, "and now?"); got != "--resume=s1" && got != "--resume" {
		t.Errorf("afterwards it answers %q", got)
	}
}

// A shell in the background runs on.
func TestBackgroundShellIsKept(t *testing.T) {
	t.Parallel()
	a := create(t, fake("background"), client(agent.Config{}))
	answer(t, a, "serve")
	session := a.(*cliAgent).session
	if got := answer(t, a, "and now?"); got != "" || session != a.(*cliAgent).session {
		t.Error("it is another CLI")
	}
}

// A CLI that does not react when it is interrupted is replaced.
func TestDeafSessionIsReplaced(t *testing.T) {
	t.Parallel()
	a := create(t, fake("deaf"), client(agent.Config{}))
	a.(*cliAgent).opts.Grace = 100 * time.Millisecond
	for range a.Handle(bounded(t), agent.NewMessage("tester", "work")) {
		break
	}
	if a.(*cliAgent).session != nil {
		t.Error("the session is kept")
	}
}

// What cannot be resumed fails once, and is begun anew.
func TestConversationThatIsGone(t *testing.T) {
	t.Parallel()
	a := create(t, fake("forgetful"), client(agent.Config{}))
	answer(t, a, "hello")
	_, err := say(t, bounded(t), a, "again")
	checkError(t, err, agent.ErrNoSession, 1, "No conversation found")
	if got := answer(t, a, "anew"); got != "new" {
		t.Errorf("afterwards it answers %q", got)
	}
}

func TestPush(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"query", "client"} {
		a := create(t, fake("busy"), agent.Config{Credentials: map[string]string{"mode": mode}})
		if err := a.Push(bounded(t), agent.NewMessage("tester", "early")); err != agent.ErrNotBusy {
			t.Errorf("%s: pushed to nobody: %v", mode, err)
		}
		var results []string
		for m, err := range a.Handle(bounded(t), agent.NewMessage("tester", "work")) {
			if err != nil {
				t.Fatal(err)
			}
			switch m.Metadata["sdk_type"] {
			case "init":
				if err := a.Push(bounded(t), agent.NewMessage("tester", "more")); err != nil {
					t.Fatal(err)
				}
			case "result":
				results = append(results, m.Content)
			}
		}
		if got := strings.Join(results, "|"); got != "done after more|pushed" {
			t.Errorf("%s: the results are %q", mode, got)
		}
		if err := a.Push(bounded(t), agent.NewMessage("tester", "late")); err != agent.ErrNotBusy {
			t.Errorf("%s: pushed after the end: %v", mode, err)
		}
	}
}

// A push in the moment when the turn ends is answered, or refused.
func TestPushAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		read  bool // whoever reads wants the answer
		ended bool // the context has ended
	}{{"answered", true, false}, {"left", false, false}, {"cancelled", true, true}} {
		t.Run(test.name, func(t *testing.T) {
			path, env := claudetest.Fake("busy")
			s, err := claude.Start(bounded(t), claude.Options{Path: path, Env: env})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			var got []string
			turn := newTurn(func(m agent.Message, _ error) bool { got = append(got, m.Content); return test.read })
			turn.open(s)
			push := "just in time"
			if test.ended {
				push = "work" // which ends when it is interrupted
			}
			if err := turn.push(bounded(t), agent.NewMessage("tester", push)); err != nil {
				t.Fatal(err)
			}
			if !turn.close() {
				t.Fatal("nothing is waiting")
			}
			ctx, stop := context.WithCancel(bounded(t))
			defer stop()
			if test.ended {
				stop()
			}
			err = (&cliAgent{}).late(ctx, turn, s)
			if (err != nil) != test.ended || !test.ended && strings.Join(got, "|") != push {
				t.Errorf("it was answered %q, %v", got, err)
			}
			if turn.dirty() != test.ended {
				t.Errorf("the session cannot be used again: %v", turn.dirty())
			}
			if err := turn.push(bounded(t), agent.NewMessage("tester", "too late")); err != agent.ErrNotBusy {
				t.Errorf("pushed after the end: %v", err)
			}
		})
	}
}

// A CLI that died, in a turn or between two, is replaced by one that resumes.
func TestDeadSessionIsResumed(t *testing.T) {
	t.Parallel()
	for _, death := range []string{"die", "answer and die", "leave"} {
		t.Run(death, func(t *testing.T) {
			t.Parallel()
			a := create(t, fake("mortal"), client(agent.Config{Name: "ada"}))
			answer(t, a, "hello")
			if _, err := say(t, bounded(t), a, death); (err == nil) != (death == "answer and die") {
				t.Fatalf("it died with %v", err)
			}
			messages, err := say(t, bounded(t), a, "who are you?")
			if err != nil {
				t.Fatal(err)
			}
			notes := of(messages, "resumed")
			if len(notes) != 1 || notes[0].Metadata["session_id"] != "s1" || notes[0].Kind != agent.System || notes[0].Sender != "ada" {
				t.Errorf("it says %+v", notes)
			}
			if r := of(messages, "result"); len(r) != 1 || !strings.HasPrefix(r[0].Content, "--resume") {
				t.Errorf("the results are %+v", r)
			}
			if again, err := say(t, bounded(t), a, "and now?"); err != nil || len(of(again, "resumed")) != 0 {
				t.Errorf("it says once more that it was resumed: %v, %v", types(again), err)
			}
		})
	}
}

func TestQueryModeStartsAnewForEach(t *testing.T) {
	t.Parallel()
	a := create(t, fake("mortal"), agent.Config{})
	for range 2 {
		if got := answer(t, a, "hello"); got != "" { // no --resume
			t.Errorf("it was started with %q", got)
		}
		if a.(*cliAgent).session != nil {
			t.Error("the session is kept")
		}
	}
}

func TestSecondHandleWaits(t *testing.T) {
	t.Parallel()
	a := create(t, fake("busy"), client(agent.Config{}))
	var second string
	var waiting sync.WaitGroup
	first := true
	for _, err := range a.Handle(bounded(t), agent.NewMessage("tester", "work")) {
		if err != nil {
			t.Fatal(err)
		}
		if first {
			first = false
			waiting.Go(func() { second = answer(t, a, "second") })
			ctx, stop := context.WithCancel(bounded(t))
			stop()
			if _, err := say(t, ctx, a, "third"); err != context.Canceled {
				t.Errorf("a message that gave up waiting: %v", err)
			}
			if err := a.Push(bounded(t), agent.NewMessage("tester", "more")); err != nil {
				t.Fatal(err)
			}
		}
	}
	waiting.Wait()
	if second != "second" {
		t.Errorf("the second message was answered %q", second)
	}
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"query", "client"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			a := create(t, fake("busy"), agent.Config{Credentials: map[string]string{"mode": mode}})
			begun := make(chan struct{})
			var handling sync.WaitGroup
			var last error
			handling.Go(func() {
				first := true
				for _, err := range a.Handle(bounded(t), agent.NewMessage("tester", "work")) {
					if first {
						first = false
						close(begun)
					}
					last = err
				}
			})
			<-begun
			if err := a.Shutdown(bounded(t)); err != nil {
				t.Error(err)
			}
			handling.Wait()
			if last != agent.ErrTerminated {
				t.Errorf("the message ended with %v", last)
			}
			if err := a.Shutdown(bounded(t)); err != nil {
				t.Errorf("the second time: %v", err)
			}
			if _, err := say(t, bounded(t), a, "hello"); err != agent.ErrTerminated {
				t.Errorf("afterwards: %v", err)
			}
			if err := a.Push(bounded(t), agent.NewMessage("tester", "hello")); err != agent.ErrNotBusy {
				t.Errorf("pushed afterwards: %v", err)
			}
		})
	}
}

// A message whose work is cut off by a shutdown ends with that, also for who comes to
// read only after the CLI has said that it was interrupted, and is gone.
func TestShutdownIsReadLate(t *testing.T) {
	t.Parallel()
	a := create(t, fake("busy"), client(agent.Config{}))
	var last error
	first := true
	for _, err := range a.Handle(bounded(t), agent.NewMessage("tester", "work")) {
		if first {
			first = false
			a.(*cliAgent).mu.Lock()
			session := a.(*cliAgent).session
			a.(*cliAgent).mu.Unlock()
			ctx, stop := context.WithCancel(t.Context())
			stop()
			if err := a.Shutdown(ctx); err != context.Canceled {
				t.Errorf("it ended before the message did: %v", err)
			}
			session.Close()
		}
		last = err
	}
	if last != agent.ErrTerminated {
		t.Errorf("the message ended with %v", last)
	}
}

// A CLI that does not end keeps nobody waiting beyond the context.
func TestShutdownIsBounded(t *testing.T) {
	t.Parallel()
	made, err := fake("deaf").Create(t.Context(), client(agent.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	a := made.(*cliAgent)
	a.opts.Grace = time.Second
	var last error
	for _, err := range a.Handle(bounded(t), agent.NewMessage("tester", "hello")) {
		if err == nil {
			ctx, stop := context.WithCancel(t.Context())
			stop()
			if err := a.Shutdown(ctx); err != context.Canceled {
				t.Errorf("it did not end within the context: %v", err)
			}
		}
		last = err
	}
	if last != agent.ErrTerminated {
		t.Errorf("the message ended with %v", last)
	}
	if err := a.Shutdown(bounded(t)); err != nil { // what is left of it ends
		t.Error(err)
	}
}

func TestWarm(t *testing.T) {
	t.Parallel()
	path, env := claudetest.Fake("mortal")
	var asked []claude.Options
	dead := false
	p := New(Options{Path: path, Env: env, Warm: func(_ context.Context, o claude.Options, _ ...string) (*claude.Warmed, bool) {
		asked = append(asked, o)
		if len(asked) > 1 {
			return nil, false
		}
		w, err := claude.Warm(bounded(t), o)
		if err != nil {
			t.Error(err)
		}
		if dead {
			w.Close()
		}
		return w, true
	}})
	for _, dead = range []bool{false, true} {
		asked = nil
		a := create(t, p, client(agent.Config{Instructions: "be brief"}))
		if got := answer(t, a, "hello"); got != "" {
			t.Errorf("a warm CLI was started with %q", got)
		}
		answer(t, a, "again")
		if len(asked) != 1 || asked[0].SystemPrompt.Text != "be brief" || asked[0].Resume != "" {
			t.Errorf("asked %d times", len(asked))
		}
	}
	asked = nil
	a := create(t, p, agent.Config{})
	answer(t, a, "one")
	answer(t, a, "two") // there is none: it starts its own
	if len(asked) != 2 {
		t.Errorf("an agent of mode query asked %d times", len(asked))
	}
}

// As soon as it is known that the model writes a call that starts an agent like the
// one that works, whoever keeps CLIs ready is told, once.
func TestOthersAreExpected(t *testing.T) {
	t.Parallel()
	path, env := claudetest.Fake("writer")
	var expected []claude.Options
	p := New(Options{Path: path, Env: env, Expect: func(o claude.Options) { expected = append(expected, o) }})
	c := agent.Config{Instructions: "be brief", Spawner: agent.Spawner{Tool: "mcp__nestor__spawn", Alike: func(input string) (alike, known bool) {
		return strings.HasPrefix(input, `{"task"`), len(input) >= 8
	}}}
	for _, test := range []struct {
		wrote string // what the model writes
		want  int
	}{
		{`mcp__nestor__spawn {"task":"a","schema":{"type":"object"}}`, 1},
		{`mcp__nestor__spawn {"agent":"critic","task":"a"}`, 0},
		{`mcp__nestor__wait {"task":"a"}`, 0},
		{`mcp__nestor__spawn {"t`, 0}, // nobody knows
		{`mcp__nestor__spawn {"task":"a"} mcp__nestor__spawn {"task":"b"}`, 2},
	} {
		expected = nil
		answer(t, create(t, p, c), test.wrote)
		if len(expected) != test.want || test.want > 0 && expected[0].SystemPrompt.Text != "be brief" {
			t.Errorf("%s: %d were expected, want %d", test.wrote, len(expected), test.want)
		}
	}
	nameless := newTurn(nil) // a tool without a name is not that of who starts none
	for _, m := range []*claude.StreamEvent{
		{Kind: claude.EventContentBlockStart, Block: &claude.ToolUse{}},
		{Kind: claude.EventContentBlockDelta, Delta: claude.Delta{PartialJSON: `{"task":"a"}`}},
	} {
		if nameless.spawns(m, agent.Spawner{}) {
			t.Errorf("%s tells of an agent", m.Kind)
		}
	}
	c.SettingSources, c.Own = []string{"project"}, []string{"TOKEN=mine"}
	expected = nil
	answer(t, create(t, p, c), `mcp__nestor__spawn {"task":"a"}`)
	if len(expected) > 0 {
		t.Error("an agent was expected whose CLI must know its own variables when it starts")
	}
}

func TestCLIIsWrapped(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no env here to be wrapped in")
	}
	c := agent.Config{Name: "ada", Wrap: func(argv []string) []string {
		return append([]string{"/usr/bin/env", "WRAPPED=yes"}, argv...)
	}}
	if got := answer(t, create(t, fake("environ"), c), "WRAPPED"); got != "true yes" {
		t.Errorf("the CLI says %q", got)
	}
}
