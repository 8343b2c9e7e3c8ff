package runner_test

import (
	"context"
	"encoding/json"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/internal/runner"
)

// slow is a provider whose agents answer at once, in session "s1", and end when they
// are let go.
type slow struct {
	command bool          // its agents run a command first
	letGo   chan struct{} // closed to let them end
	made    int
	config  agent.Config // of the last

	told atomic.Bool // one was told to end
}

func (p *slow) Type() string               { return "slow" }
func (p *slow) Check(context.Context) bool { return true }

func (p *slow) Create(_ context.Context, c agent.Config) (agent.Agent, error) {
	p.made++
	p.config = c
	return &slowAgent{p, c}, nil
}

// runner returns one that has the provider alone, in a folder that is watched if o
// says nothing else.
func (p *slow) runner(t *testing.T, o runner.Options) *runner.Runner {
	t.Helper()
	providers, err := agent.NewProviders(p)
	if err != nil {
		t.Fatal(err)
	}
	o.Providers, o.Provider = providers, p.Type()
	if o.Workspace == nil {
		o.Workspace = watched{}
	}
	return runner.New(o)
}

type slowAgent struct {
	*slow
	config agent.Config
}

func (a *slowAgent) Name() string                    { return "slow" }
func (a *slowAgent) State() (agent.State, time.Time) { return agent.Idle, time.Time{} }

func (a *slowAgent) Handle(ctx context.Context, _ agent.Message) iter.Seq2[agent.Message, error] {
	return func(yield func(agent.Message, error) bool) {
		if a.command {
			for _, h := range a.config.Hooks.PreToolUse {
				h.Func(ctx, &claude.PreToolUseInput{Tool: "Bash", ToolInput: json.RawMessage(`{}`)})
			}
		}
		m := agent.NewMessage("slow", "done")
		m.Metadata = map[string]any{"sdk_type": "result", "subtype": "success", "session_id": "s1"}
		yield(m, nil)
	}
}

func (a *slowAgent) Shutdown(context.Context) error {
	a.told.Store(true)
	<-a.letGo
	return nil
}

// still sees no change.
type still struct{}

func (still) Run(ctx context.Context, _ func(path, action string)) error {
	<-ctx.Done()
	return nil
}
func (still) Sync(context.Context) error { return nil }

// watched is a folder, with what more is said of it.
type watched struct{ close func(*nestor.Result) error }

func (w watched) Open(context.Context, runner.Run) (runner.Place, error) {
	return runner.Place{Close: w.close, Watch: func(context.Context) (runner.Watcher, error) { return still{}, nil }}, nil
}

type rights runner.Rights

func (r rights) Rights(runner.Run, runner.Place) (runner.Rights, error) { return runner.Rights(r), nil }

// An agent that has answered ends behind its run, unless it could change something
// meanwhile or uses what ends with the run.
func TestAgentEndsBehindItsRun(t *testing.T) {
	for name, test := range map[string]struct {
		command bool
		place   watched
		rights  rights
		servers map[string]agent.MCPServer
		sources []string
		waits   bool
	}{
		"nothing":              {},
		"a server elsewhere":   {servers: map[string]agent.MCPServer{"a": {URL: "http://localhost"}}},
		"a command":            {command: true, waits: true},
		"a place that is left": {place: watched{func(*nestor.Result) error { return nil }}, waits: true},
		"what ends with it":    {rights: rights{Ends: true}, waits: true},
		"a program of its own": {servers: map[string]agent.MCPServer{"a": {Command: "true"}}, waits: true},
		"settings, with hooks": {sources: []string{"user"}, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &slow{command: test.command, letGo: make(chan struct{})}
				r := p.runner(t, runner.Options{Workspace: test.place, Policy: test.rights, Settings: test.sources})
				executed := make(chan nestor.Result, 1)
				go func() {
					executed <- r.Execute(t.Context(), runner.Run{ID: id, Root: root, Servers: test.servers}, &records{})
				}()
				synctest.Wait()
				if waits := len(executed) == 0; waits != test.waits {
					t.Errorf("the run waits for its agent's end: %v, want %v", waits, test.waits)
				}
				close(p.letGo)
				if result := <-executed; result.Status != nestor.Success {
					t.Errorf("the result is %+v", result)
				}
				r.Wait()
			})
		})
	}
}

// Who goes on with a session waits for the agent that had it; others do not, and Wait
// waits for all.
func TestSessionIsLeftBeforeItIsGoneOnWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &slow{letGo: make(chan struct{})}
		r := p.runner(t, runner.Options{})
		run := runner.Run{ID: id, Root: root}
		r.Execute(t.Context(), run, &records{})
		other := run
		other.Session = "s2"
		r.Execute(t.Context(), other, &records{})
		run.Session = "s1"
		impatient, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if result := r.Execute(impatient, run, &records{}); result.Status != nestor.Error || p.made != 2 {
			t.Errorf("with the agent there it is %s, and %d agents were made", result.Status, p.made)
		}
		waited := make(chan struct{})
		go func() {
			r.Execute(t.Context(), run, &records{})
			r.Wait()
			close(waited)
		}()
		synctest.Wait()
		if p.made != 2 {
			t.Error("two agents have one session")
		}
		close(p.letGo)
		<-waited
		if p.made != 3 {
			t.Errorf("%d agents were made, want 3", p.made)
		}
	})
}

// An agent that may end behind its run is not ended at once, while who waited for it
// goes on, unless its session is wanted or all is to end.
func TestAgentLingers(t *testing.T) {
	for name, test := range map[string]struct {
		then    func(context.Context, *runner.Runner)
		lingers bool
	}{
		"nothing happens":       {func(context.Context, *runner.Runner) {}, true},
		"another run":           {execute(""), true},
		"its session is wanted": {execute("s1"), false},
		"the runner ends":       {func(_ context.Context, r *runner.Runner) { r.Wait() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &slow{letGo: make(chan struct{})}
				close(p.letGo)
				r := p.runner(t, runner.Options{})
				execute("")(t.Context(), r)
				test.then(t.Context(), r)
				synctest.Wait()
				if lingers := !p.told.Load(); lingers != test.lingers {
					t.Errorf("the agent lingers: %v, want %v", lingers, test.lingers)
				}
				time.Sleep(time.Minute) // of the bubble's clock
				if !p.told.Load() {
					t.Error("the agent was never told to end")
				}
				r.Wait()
			})
		})
	}
}

// execute returns what executes a run that goes on with a session.
func execute(session string) func(context.Context, *runner.Runner) {
	return func(ctx context.Context, r *runner.Runner) {
		r.Execute(ctx, runner.Run{ID: id, Root: root, Session: session}, &records{})
	}
}

// A folder that is watched costs the CLI a question before each call that may change it,
// and calls of servers are among them only if there are others than the host's.
func TestCallsThatAreAskedAbout(t *testing.T) {
	for name, test := range map[string]struct {
		servers map[string]agent.MCPServer // of the definition
		sources []string
		match   string
	}{
		"the host's alone":  {match: "^(Bash|PowerShell|REPL|Monitor|Skill)$"},
		"a definition's":    {servers: map[string]agent.MCPServer{"files": {}}, match: "^(Bash|PowerShell|REPL|Monitor|Skill|mcp__.*)$"},
		"those of settings": {sources: []string{"user"}, match: "^(Bash|PowerShell|REPL|Monitor|Skill|mcp__.*)$"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &slow{letGo: make(chan struct{})}
			close(p.letGo)
			brief := func(context.Context, runner.Run, runner.Place, runner.Rights) (runner.Brief, error) {
				return runner.Brief{Servers: test.servers}, nil
			}
			r := p.runner(t, runner.Options{Settings: test.sources, Brief: brief})
			r.Execute(t.Context(), runner.Run{ID: id, Root: root, Servers: map[string]agent.MCPServer{"nestor": {}}}, &records{})
			r.Wait()
			if hooks := p.config.Hooks.PreToolUse; len(hooks) != 1 || hooks[0].Match.String() != test.match {
				t.Errorf("the CLI asks by %+v", hooks)
			}
		})
	}
}
