package pool

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// own returns options whose functions and server note name when they are called.
func own(name string, note func(what string)) claude.Options {
	server := mcp.NewServer(&mcp.Implementation{Name: "s"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "whose"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		note(name + "'s tool")
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "this is " + name + "'s server"}}}, nil, nil
	})
	return claude.Options{
		CanUseTool: func(_ context.Context, q *claude.PermissionRequest) (claude.Decision, error) {
			note(name + "'s permission for " + q.Tool)
			return claude.Allow{}, nil
		},
		OnFrame: func() { note(name + "'s frame") },
		Hooks: claude.Hooks{PreToolUse: []claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput]{{
			Match: claude.Tool("Bash"),
			Func: func(_ context.Context, in *claude.PreToolUseInput) (*claude.PreToolUseOutput, error) {
				note(name + "'s hook for " + in.Tool)
				return nil, nil
			},
		}}},
		MCPServers: map[string]claude.MCPServer{"s": &claude.InProcess{Server: server}},
		Wrap:       func(argv []string) []string { return append([]string{"/usr/bin/env"}, argv...) },
	}
}

// What a real CLI calls that was started ahead is what its owner brings, never
// what was there when it was started.
func TestLiveOwner(t *testing.T) {
	cli := claudetest.Real(t)
	model := scriptmodel.Start(t, `
rules:
  - turns:
      - tools: [{name: Bash, input: {command: "touch x; echo I am $WHO", description: "say"}}]
      - tools: [{name: mcp__s__whose, input: {}}]
      - {text: Done.}
`)
	notes := make(chan string, 10_000)
	options := func(name string) claude.Options {
		o := own(name, func(what string) { notes <- what })
		o.Path, o.Dir, o.ReplaceEnv, o.Env = cli.Path, cli.Dir, true, append(cli.Env, scriptmodel.ClientEnv(model.URL)...)
		o.PermissionMode = claude.ModeDefault
		return o
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	started := make(chan struct{}, 10)
	w := NewWarm(WarmOptions{Start: func(ctx context.Context, o claude.Options) (*claude.Warmed, error) {
		defer func() { started <- struct{}{} }()
		return claude.Warm(ctx, o)
	}})
	done := make(chan error, 1)
	running, end := context.WithCancel(ctx)
	go func() { done <- w.Run(running) }()
	if err := w.Keep(options("keeper"), 1); err != nil {
		t.Fatal(err)
	}
	<-started
	h, ok := w.Take(ctx, options("taker"), "WHO=the taker")
	for !ok { // it is noted a moment after its start
		h, ok = w.Take(ctx, options("taker"), "WHO=the taker")
	}
	defer h.Close()
	if got := answer(ctx, t, h, "go"); got != "Done." {
		t.Errorf("answered %q", got)
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	close(notes)
	var all []string
	for what := range notes {
		all = append(all, what)
	}
	for _, want := range []string{"taker's permission for Bash", "taker's hook for Bash", "taker's tool", "taker's frame"} {
		if !slices.Contains(all, want) {
			t.Errorf("%s was not called", want)
		}
	}
	if i := slices.IndexFunc(all, func(what string) bool { return strings.HasPrefix(what, "keeper") }); i >= 0 {
		t.Errorf("%s was called", all[i])
	}
	for _, want := range []string{"I am the taker", "this is taker's server"} {
		if !slices.ContainsFunc(model.Requests(), func(r *scriptmodel.Request) bool { return strings.Contains(string(r.Body), want) }) {
			t.Errorf("the model was not told %q", want)
		}
	}
}

// Before anybody has a CLI, what it asks is not allowed, and nothing is called. It knows
// the servers, whose tools it has no reason to call before there is a prompt.
func TestNobodysCLI(t *testing.T) {
	o := new(line).through(own("keeper", func(what string) { t.Errorf("%s was called", what) }))
	if d, err := o.CanUseTool(t.Context(), &claude.PermissionRequest{}); d != nil || err == nil {
		t.Errorf("a permission: %v, %v", d, err)
	}
	if out, err := o.Hooks.PreToolUse[0].Func(t.Context(), &claude.PreToolUseInput{}); out != nil || err == nil {
		t.Errorf("a hook: %v, %v", out, err)
	}
	o.OnFrame()
	if len(o.MCPServers) != 1 {
		t.Errorf("it has the servers %v", o.MCPServers)
	}
}

// What is asked for again and again is kept, until it is not asked for any more.
func TestLearns(t *testing.T) {
	bubble(t, WarmOptions{Learn: time.Minute, Max: 3}, func(t *testing.T, r running) {
		a, once := claude.Options{Model: "a"}, claude.Options{Model: "once"}
		r.miss(t, once)
		r.miss(t, a)
		pass(10 * time.Second)
		r.miss(t, a) // twice: from now on there is one
		pass(10 * time.Second)
		if s := r.Stats(); s.Idle != 1 {
			t.Errorf("after two times: %+v", s)
		}
		r.hit(t, a)
		pass(10 * time.Second)
		if s := r.Stats(); s.Idle != 2 {
			t.Errorf("after three times: %+v", s)
		}
		for range 5 {
			r.hit(t, a)
			pass(10 * time.Second)
		}
		if s := r.Stats(); s.Idle != 3 {
			t.Errorf("after many times: %+v", s)
		}
		pass(2 * time.Minute)
		if s := r.Stats(); s.Idle != 0 {
			t.Errorf("after none for two minutes: %+v", s)
		}
		r.miss(t, a)
		pass(10 * time.Second)
		if s := r.Stats(); s.Idle != 0 {
			t.Errorf("what was forgotten is begun anew: %+v", s)
		}
		r.miss(t, once) // two minutes and more later, it is the first time again
		pass(10 * time.Second)
		if s := r.Stats(); s.Idle != 0 {
			t.Errorf("what was asked for long ago counts: %+v", s)
		}
	})
}

// What is expected is started at once, however quiet it is to be. Who asks for it
// before it is ready waits for it, and who asks besides starts one.
func TestExpected(t *testing.T) {
	bubble(t, WarmOptions{Learn: time.Minute, Pause: 30 * time.Second}, func(t *testing.T, r running) {
		a := claude.Options{Model: "a"}
		started := func(want int) {
			t.Helper()
			pass(0)
			if n := len(r.cli.tried()); n != want {
				t.Fatalf("%d were started, want %d", n, want)
			}
		}
		r.miss(t, a) // from now on it is quiet
		r.Expect(a)
		started(1)
		pass(time.Second / 2)
		began := time.Now()
		waited := make(chan time.Duration)
		go func() {
			r.hit(t, a)
			waited <- time.Since(began)
		}()
		started(1)
		r.miss(t, a)
		if took := time.Since(began); took > 0 {
			t.Errorf("the second one to ask waited for %v", took)
		}
		r.Expect(a)
		started(2)
		if got := <-waited; got != time.Second/2 {
			t.Errorf("who waited got one after %v, want half a second", got)
		}
		pass(time.Second)
		r.hit(t, a)
		started(2)
		r.Expect(a)
		r.Expect(a)
		r.Expect(a)
		started(4) // two at a time are the bound
		r.hit(t, a)
		r.hit(t, a)
		pass(29 * time.Second)
		started(4)
	})
}

// Who waits for a start does so no longer than it goes on.
func TestExpectedInVain(t *testing.T) {
	bubble(t, WarmOptions{Learn: time.Minute}, func(t *testing.T, r running) {
		a := claude.Options{Model: "a"}
		r.cli.takes = time.Hour
		r.Expect(a)
		pass(0)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		began := time.Now()
		if h, ok := r.Take(ctx, a); ok {
			h.Close()
			t.Error("there is one")
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %v", took)
		}
		r.cli.nth(0).Kill() // the start fails
		r.miss(t, a)
	})
	bubble(t, WarmOptions{}, func(t *testing.T, r running) {
		r.Expect(claude.Options{Model: "a"})
		pass(time.Minute)
		if n := len(r.cli.tried()); n != 0 {
			t.Errorf("%d were started for what nobody keeps", n)
		}
	})
	bubble(t, WarmOptions{Learn: time.Minute}, func(t *testing.T, r running) {
		r.Expect(claude.Options{Model: "a"})
		pass(2 * time.Minute)
		if s := r.Stats(); s.Idle != 0 || s.Discarded != 1 {
			t.Errorf("what was expected and never asked for: %+v", s)
		}
	})
}
