package cli

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor"
)

var update = flag.Bool("update", false, "write testdata/view, and the table of keys in docs/config.md, anew")

// runID returns an ID that is the same in each run of the tests.
func runID(n int) nestor.ID { return nestor.ID(fmt.Sprintf("0199d3a2-7c1e-7000-8000-%012x", n)) }

// stage plays events to a view, in a bubble, and writes down what is seen.
type stage struct {
	*screen
	view
	seen strings.Builder
}

// head returns the header of an event of now.
func head(run int) nestor.Header {
	depth := 0
	if run > 0 {
		depth = 1
	}
	return nestor.Header{Time: time.Now(), Run: runID(run), Root: runID(0), Depth: depth}
}

// look writes down what is on the screen when it has been drawn.
func (s *stage) look(title string) {
	time.Sleep(redrawEvery)
	synctest.Wait()
	fmt.Fprintf(&s.seen, "-- %s (%d×%d) --\n%s", title, s.cols, s.rows, s.screen)
}

// tool plays a whole call.
func (s *stage) tool(run int, name, description, summary string, success bool, d time.Duration) {
	id := fmt.Sprint(run, name, description)
	s.event(&nestor.ToolStart{Header: head(run), Tool: name, Description: description, ToolUseID: id})
	time.Sleep(d)
	s.event(&nestor.ToolComplete{Header: head(run), Tool: name, Success: success, Summary: summary, ToolUseID: id})
}

// begin plays the beginning of a run.
func (s *stage) begin(run int, agent string) {
	s.event(&nestor.ExecutionStart{Header: head(run), ExecutionID: string(runID(run)), Agent: agent, Attempt: 1})
	s.event(&nestor.AgentStart{Header: head(run), Agent: agent, AgentType: "scripted"})
}

func (s *stage) progress(run, turns int, usd float64, tokens int) {
	s.event(&nestor.ExecutionProgress{Header: head(run), Turns: turns, CostUSD: usd, Usage: &nestor.Usage{Output: tokens}})
}

func (s *stage) spawn(run, child int, agent, task string) {
	s.event(&nestor.AgentSpawn{Header: head(run), Agent: agent, Description: task, Child: runID(child)})
	s.event(&nestor.RunQueued{Header: head(child), Parent: runID(run), Agent: agent})
}

func (s *stage) finish(run int, agent string, status nestor.State, usd float64) {
	e := &nestor.ExecutionComplete{Header: head(run), Agent: agent, Success: status == nestor.Success, Status: status, ResultSummary: "the result of " + agent, CostUSD: usd, Turns: 2}
	if !e.Success {
		e.Error = &nestor.Failure{Kind: nestor.Provider, Message: "the model said no\nand more"}
	}
	s.event(e)
}

// play runs a scene in a bubble and compares what was seen with its golden file.
func play(t *testing.T, name string, cols, rows int, o viewOptions, scene func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{screen: newScreen(cols, rows)}
		o.Terminal, o.Color, o.Size, o.Root = true, true, s.size, runID(0)
		o.Now = func() time.Time { return time.Now().UTC() }
		fmt.Fprint(s.screen, "$ nestor run\r\n")
		s.view = newView(s.screen, o)
		defer s.close(nil)
		scene(s)
		s.close(nil)
		compare(t, name, s.seen.String())
		if p := s.problem(); p != "" {
			t.Error(p)
		}
		if w := s.withheld(); w != "" {
			t.Errorf("after close: %s", w)
		}
		if all, _ := s.all(); !strings.HasPrefix(all[0], "$") {
			t.Errorf("what stood above is gone:\n%s", strings.Join(all, "\n"))
		}
	})
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "view", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; is it better? Then run this test with -update. Got\n%s\nwant\n%s", file, got, want)
	}
}

func TestViewSimple(t *testing.T) {
	play(t, "simple", 60, 14, viewOptions{}, func(s *stage) {
		s.event(&nestor.RunQueued{Header: head(0), Agent: "ada"})
		s.look("queued")
		time.Sleep(2 * time.Second)
		s.begin(0, "ada")
		s.look("started")
		s.event(&nestor.ThinkingDelta{Header: head(0), Delta: "They want to know what a monad is. "})
		s.event(&nestor.ThinkingDelta{Header: head(0), Delta: "I better keep it short."})
		s.look("thinks")
		time.Sleep(3 * time.Second)
		s.event(&nestor.ThinkingComplete{Header: head(0), Thinking: "…"})
		const text = "A monad is a way to write down steps that depend on each other.\n\n  - one\n  - two\n\nThat is all."
		for _, word := range strings.SplitAfter(text[:70], " ") {
			s.event(&nestor.AgentDelta{Header: head(0), Delta: word})
		}
		s.look("writes")
		s.event(&nestor.AgentComplete{Header: head(0), Content: text})
		s.progress(0, 1, 0.0042, 1234)
		s.look("said")
		s.event(&nestor.ExecutionComplete{Header: head(0), Agent: "ada", Success: true, Status: nestor.Success, CostUSD: 0.0042, Usage: nestor.Usage{Output: 1234}, Turns: 1})
		s.close(&nestor.Result{Status: nestor.Success, Output: text, CostUSD: 0.0042, Usage: nestor.Usage{Output: 1234}, Turns: 1})
		s.look("closed: the result is the caller's to print")
	})
}

func TestViewTools(t *testing.T) {
	play(t, "tools", 60, 16, viewOptions{}, func(s *stage) {
		s.begin(0, "ada")
		s.event(&nestor.AgentComplete{Header: head(0), Content: "I look at the limiter first, then I run its tests, which takes a moment."})
		s.tool(0, "Read", "internal/limit/limiter.go", "package limit", true, 30*time.Millisecond)
		s.tool(0, "Grep", "a pattern so long that the line it is on has no room for the whole of it", "", true, 1200*time.Millisecond)
		s.event(&nestor.AgentComplete{Header: head(0), Content: "Now the tests."})
		for i := range 6 {
			s.event(&nestor.ToolStart{Header: head(0), Tool: "Bash", Description: fmt.Sprintf("go test ./limit/%d", i), ToolUseID: fmt.Sprint(i)})
			time.Sleep(11 * time.Second)
		}
		s.progress(0, 3, 0.31, 41_234)
		s.look("six at once")
		for i := range 6 {
			s.event(&nestor.ToolComplete{Header: head(0), Tool: "Bash", Success: i != 2, Summary: "exit status 1\n--- FAIL: TestBurst", ToolUseID: fmt.Sprint(i)})
		}
		s.look("one failed")
	})
}

func TestViewVerbose(t *testing.T) {
	play(t, "verbose", 40, 20, viewOptions{Verbose: true}, func(s *stage) {
		s.begin(0, "ada")
		s.event(&nestor.ThinkingComplete{Header: head(0), Thinking: "All of this thought is shown, however long it is."})
		s.tool(0, "Bash", "ls", "a.go\nb.go\n", true, time.Second)
		s.tool(0, "Bash", "cat c.go", "cat: c.go: No such file or directory\n", false, time.Second)
		s.event(&nestor.WorkspaceWrite{Header: head(0), Path: "a.go", Action: "edit"})
		s.look("all")
	})
}

func TestViewFailure(t *testing.T) {
	play(t, "failure", 60, 12, viewOptions{}, func(s *stage) {
		s.begin(0, "ada")
		s.event(&nestor.ErrorEvent{Header: head(0), Message: "the model is overloaded\nreally", Kind: nestor.Connection})
		s.event(&nestor.RunRetry{Header: head(0), Reason: "the model is overloaded", Attempt: 2, At: time.Now().Add(8 * time.Second)})
		time.Sleep(3 * time.Second)
		s.look("before the next attempt")
		s.event(&nestor.RunResumed{Header: head(0), Reason: "worker w1 was lost"})
		s.begin(0, "ada")
		s.note("interrupting; Ctrl-C again ends it now")
		s.event(&nestor.RunCancelled{Header: head(0), Reason: "cancelled by a person"})
		s.look("is to end")
		if s.withheld() == "the cursor is hidden" {
			t.Error("the cursor is hidden from who was told that Ctrl-C ends it now")
		}
		s.close(&nestor.Result{Status: nestor.Error, Turns: 4, Error: &nestor.Failure{Kind: nestor.Stopped, Message: "by a person\nat last"}, Metadata: map[string]any{"missing_tools": []any{"Telepathy", "Bsh"}}})
		s.look("closed")
	})
}

func TestViewWaiting(t *testing.T) {
	play(t, "waiting", 72, 12, viewOptions{}, func(s *stage) {
		s.begin(0, "ada")
		s.progress(0, 7, 1.84, 2_345_678)
		wait := func(w nestor.Wait) {
			w.Since = time.Now()
			s.event(&nestor.RunWaiting{Header: head(0), Wait: w})
			time.Sleep(75 * time.Second)
			s.look("for " + string(w.For))
			s.event(&nestor.RunResumed{Header: head(0)})
		}
		wait(nestor.Wait{For: nestor.ForLimit, Until: time.Now().Add(30 * time.Hour), Reason: "five-hour limit"})
		wait(nestor.Wait{For: nestor.ForSlot})
		wait(nestor.Wait{For: nestor.ForChildren})
		wait(nestor.Wait{For: "godot"})
		s.event(&nestor.Ask{Header: head(0), AskID: "a1", Tool: "Bash", Question: "may it run psql -f 0042.sql?"})
		time.Sleep(41 * time.Second)
		s.look("for person")
		s.event(&nestor.Answer{Header: head(0), AskID: "a1", Decision: "allow", By: "bob"})
		s.look("answered")
	})
}

func TestViewChildren(t *testing.T) {
	play(t, "children", 72, 24, viewOptions{}, func(s *stage) {
		s.begin(0, "orchestrator")
		s.progress(0, 2, 0.31, 4000)
		s.event(&nestor.AgentComplete{Header: head(0), Content: "Three of us will do it."})
		s.spawn(0, 1, "researcher", "find out how others limit")
		s.spawn(0, 2, "implementer", "write it")
		s.spawn(0, 3, "critic", "read it")
		s.event(&nestor.RunWaiting{Header: head(0), Wait: nestor.Wait{For: nestor.ForChildren, Since: time.Now()}})
		s.begin(1, "researcher")
		s.begin(2, "implementer")
		time.Sleep(74 * time.Second)
		s.tool(1, "WebFetch", "https://example.com/limits", "", true, time.Second)
		s.event(&nestor.AgentComplete{Header: head(1), Content: "Everybody uses a token bucket, with bursts that are short, and nobody regrets it in what they wrote about it later."})
		s.finish(1, "researcher", nestor.Success, 0.22)
		s.spawn(2, 4, "migrator", "write the migration")
		s.spawn(2, 5, "researcher", "look at the clock going backwards")
		s.begin(4, "migrator")
		s.begin(5, "researcher")
		s.progress(2, 11, 0.97, 30_000)
		s.event(&nestor.Ask{Header: head(4), AskID: "a1", Tool: "Bash"})
		s.event(&nestor.ToolStart{Header: head(5), Tool: "Bash", Description: "go test ./limit/...", ToolUseID: "x"})
		s.event(&nestor.AgentDelta{Header: head(2), Delta: "While the tests run I wire the quota into the config.\nThe default stays"})
		s.event(&nestor.RunWaiting{Header: head(3), Wait: nestor.Wait{For: nestor.ForRuns, Runs: []nestor.ID{runID(2)}}})
		time.Sleep(41 * time.Second)
		s.look("a tree")
		for i := range 30 {
			s.spawn(5, 10+i, "tester", "")
			if i%3 == 0 {
				s.begin(10+i, "tester")
			}
		}
		s.look("a tree that does not fit")
		s.finish(4, "migrator", nestor.Error, 0.08)
		s.look("one failed")
	})
}

func TestViewNarrow(t *testing.T) {
	play(t, "narrow", 20, 10, viewOptions{}, func(s *stage) {
		s.begin(0, "orchestrator")
		s.event(&nestor.AgentComplete{Header: head(0), Content: "Donaudampfschifffahrtsgesellschaft 東京都に住んでいます e\u0301e\u0301"})
		s.tool(0, "Bash", "go test ./limit/...", "exit status 1 and more of it", false, 61*time.Minute)
		s.spawn(0, 1, "implementer", "write it")
		s.begin(1, "implementer")
		s.event(&nestor.AgentComplete{Header: head(1), Content: "I write it, as I was told to."})
		s.event(&nestor.AgentDelta{Header: head(0), Delta: "Meanwhile I wait for what it says."})
		s.progress(0, 11, 0.97, 30_000)
		s.look("twenty columns")
		s.resize(20, 4)
		s.look("four lines")
		s.resize(2, 2)
		s.look("two by two")
		s.resize(1, 1)
		s.look("one by one")
	})
}

func TestViewResize(t *testing.T) {
	for _, reflow := range []bool{false, true} {
		name := "resize"
		if reflow {
			name = "resize_reflow"
		}
		play(t, name, 70, 12, viewOptions{}, func(s *stage) {
			s.reflow = reflow
			s.begin(0, "ada")
			s.event(&nestor.AgentComplete{Header: head(0), Content: strings.Repeat("some words that were said ", 6)})
			s.tool(0, "Bash", "go test ./limit/...", "", true, time.Second)
			s.event(&nestor.AgentDelta{Header: head(0), Delta: strings.Repeat("words that are being said ", 12)})
			s.look("wide")
			s.resize(30, 12)
			s.look("narrower")
			s.resize(30, 6)
			s.look("lower")
			s.resize(70, 14)
			s.look("as wide as before")
		})
	}
}

// hostile is text that must not reach a terminal as it is.
const hostile = "\x1b[2J\x1b]0;title\x07\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\ \x1b[31mred\x1b[0m 10%\r20%\rdone\x00\b\x7f\xff\xfe \u009b31mC1 \u202egnp.exe\u202c \u2066x\u2069 a\u0300\u0301\u0302\u0303\u0304\u0305\u0306 \u2028sep \ufeffbom \U000e0041tag ❤\ufe0f 👩\u200d👩\u200d👧 \ue0b0 \x1b"

func TestViewHostileText(t *testing.T) {
	play(t, "hostile", 72, 24, viewOptions{}, func(s *stage) {
		s.begin(0, "ada"+hostile)
		s.event(&nestor.AgentComplete{Header: head(0), Content: hostile})
		s.tool(0, hostile, hostile, hostile, false, time.Second)
		s.event(&nestor.ErrorEvent{Header: head(0), Message: hostile})
		s.spawn(0, 1, hostile, hostile)
		s.begin(1, hostile)
		s.event(&nestor.ToolStart{Header: head(1), Tool: hostile, Description: hostile, ToolUseID: "x"})
		s.event(&nestor.Ask{Header: head(0), AskID: hostile, Question: hostile})
		s.note(hostile)
		s.event(&nestor.AgentDelta{Header: head(0), Delta: hostile})
		s.look("all that is left of it")
		s.close(&nestor.Result{Status: nestor.State(hostile), Error: &nestor.Failure{Kind: nestor.Kind(hostile), Message: hostile}})
		s.look("closed")
	})
}

func TestViewPlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := &stage{view: newView(&out, viewOptions{Color: true, Root: runID(0), Now: func() time.Time { return time.Now().UTC() }})}
		s.event(&nestor.RunQueued{Header: head(0), Agent: "ada"})
		time.Sleep(2 * stillAfter) // of the bubble
		s.begin(0, "ada")
		s.event(&nestor.AgentDelta{Header: head(0), Delta: "not shown"})
		s.event(&nestor.ThinkingDelta{Header: head(0), Delta: "nor this"})
		s.event(&nestor.AgentComplete{Header: head(0), Content: "Two lines\nof text."})
		s.tool(0, "Bash", "go test", "exit status 1\nmore", false, 1500*time.Millisecond)
		s.spawn(0, 1, "bob", "look"+hostile)
		s.begin(1, "bob")
		s.event(&nestor.AgentComplete{Header: head(1), Content: "I looked.\r\nTwice." + hostile})
		s.event(&nestor.Letter{Header: head(1), From: "bob", To: "ada", Content: "see there"})
		s.event(&nestor.RunWaiting{Header: head(1), Wait: nestor.Wait{For: nestor.ForLimit, Until: time.Now().Add(time.Hour)}})
		s.finish(1, "bob", nestor.Partial, 0.5)
		s.note("interrupting")
		s.event(&nestor.AgentComplete{Header: head(0), Content: "The last word."})
		s.event(&nestor.ChatComplete{Header: head(0), Success: true})
		s.close(&nestor.Result{Status: nestor.Success, Output: "The last word.", Turns: 3, CostUSD: 0.25})
		s.close(nil)
		s.event(&nestor.AgentComplete{Header: head(0), Content: "too late"})
		s.note("too late")
		compare(t, "plain", out.String())
		if strings.ContainsFunc(out.String(), func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }) {
			t.Errorf("control characters in %q", out.String())
		}
	})
}

// What a run does for long is said once for a while, and what is over soon is not.
func TestViewPlainSaysWhatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		v := newView(&out, viewOptions{})
		does := func(activity string) { v.event(&nestor.ExecutionProgress{Header: head(0), Activity: activity}) }
		v.event(&nestor.AgentStart{Header: head(0), Agent: "ada"})
		does("looks around")
		v.event(&nestor.ThinkingDelta{Header: head(0), Delta: "hm"})
		time.Sleep(2 * stillAfter) // of the bubble
		does("retry 1")
		time.Sleep(stillAfter / 2)
		does("retry 2")
		time.Sleep(2 * stillAfter)
		does("retry 3")
		time.Sleep(2 * stillAfter)
		does("retry 4")
		v.close(&nestor.Result{Status: nestor.Error})
		if got := out.String(); !strings.HasPrefix(got, "· retry 2\n· retry 3\n✗ error") {
			t.Errorf("it says\n%s", got)
		}
	})
}

// Text that is not the result is told, also when the result is another.
func TestViewTellsTextThatIsNotTheResult(t *testing.T) {
	for _, result := range []*nestor.Result{nil, {Status: nestor.Success, Output: "another"}} {
		var out bytes.Buffer
		v := newView(&out, viewOptions{})
		v.event(&nestor.AgentComplete{Header: head(0), Content: "said"})
		v.close(result)
		if !strings.HasPrefix(out.String(), "said\n") {
			t.Errorf("with result %v: %q", result, out.String())
		}
	}
}

// What a run said that it does holds until it does something else.
func TestViewForgetsAnOldActivity(t *testing.T) {
	s := story{forest: newForest("", time.Now)}
	s.tell(&nestor.AgentStart{Header: head(0), Agent: "ada"})
	s.tell(&nestor.ExecutionProgress{Header: head(0), Activity: "reads the plan", Turns: 2, CostUSD: 0.5})
	root := s.runs[runID(0)]
	if got := s.doing(root, time.Now(), false); got != "reads the plan" {
		t.Errorf("it %q", got)
	}
	s.tell(&nestor.ToolStart{Header: head(0), Tool: "Read", ToolUseID: "x"})
	s.tell(&nestor.ToolComplete{Header: head(0), Tool: "Read", Success: true, ToolUseID: "x"})
	if got := s.doing(root, time.Now(), false); got != "running" {
		t.Errorf("after a tool it %q", got)
	}
	if told := s.end(&nestor.Result{Status: nestor.Success}); !strings.Contains(told[0].text, "2 turns · $0.50") {
		t.Errorf("a result that does not know what it cost: %q", told[0].text)
	}
}

// Thousands of events a second are a few drawings, of what the screen holds.
func TestViewCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScreen(80, 24)
		v := newView(s, viewOptions{Terminal: true, Size: s.size})
		for range 10 {
			for range 1000 {
				v.event(&nestor.AgentDelta{Header: head(0), Delta: "some words "})
			}
			time.Sleep(redrawEvery)
			synctest.Wait()
		}
		before, written := s.count()
		if before > 10 || written > 10*80*24 {
			t.Errorf("10,000 deltas in a second are %d writes of %d bytes", before, written)
		}
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if writes, _ := s.count(); writes > before+1 { // the clock may have moved on
			t.Errorf("%d writes though nothing happened", writes-before)
		}
		v.close(nil)
	})
}

// Many things at once are not kept until the next drawing.
func TestViewBoundsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScreen(80, 24)
		v := newView(s, viewOptions{Terminal: true, Size: s.size})
		for range 10 {
			v.event(&nestor.AgentComplete{Header: head(0), Content: strings.Repeat("words ", maxPending/12)})
		}
		if writes, _ := s.count(); writes == 0 {
			t.Error("megabytes wait to be drawn")
		}
		v.close(nil)
	})
}

func TestViewWritesNothingBeforeAndAfter(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := newScreen(80, 24)
	newView(s, viewOptions{Terminal: true}).close(nil)
	if _, written := s.count(); written > 0 {
		t.Errorf("a view that was told nothing wrote %d bytes", written)
	}
	v := newView(s, viewOptions{Terminal: true})
	v.event(&nestor.AgentComplete{Header: head(0), Content: "hello"})
	v.close(nil)
	_, before := s.count()
	v.event(&nestor.AgentComplete{Header: head(0), Content: "too late"})
	v.note("too late")
	v.close(nil)
	if _, written := s.count(); written != before {
		t.Errorf("it wrote %d bytes after close", written-before)
	}
	if all, _ := s.all(); all[0] != "hello" {
		t.Errorf("the first line is %q", all[0])
	}
}

// failingWriter is a terminal that has gone away.
type failingWriter struct{ writes int }

func (w *failingWriter) Write(p []byte) (int, error) {
	w.writes++
	return 0, errors.New("it has gone")
}

func TestViewOfATerminalThatHasGone(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		var w failingWriter
		v := newView(&w, viewOptions{Terminal: terminal})
		for range 3 {
			v.note("hello")
		}
		v.close(nil)
		if w.writes != 1 {
			t.Errorf("terminal %v: it was written to %d times", terminal, w.writes)
		}
	}
}

func TestColorWanted(t *testing.T) {
	for _, test := range []struct {
		terminal bool
		env      map[string]string
		want     bool
	}{
		{true, nil, true},
		{false, nil, false},
		{true, map[string]string{"NO_COLOR": "1"}, false},
		{true, map[string]string{"NO_COLOR": ""}, true},
		{true, map[string]string{"TERM": "dumb"}, false},
		{true, map[string]string{"TERM": "xterm"}, true},
	} {
		if got := colorWanted(test.terminal, func(key string) string { return test.env[key] }); got != test.want {
			t.Errorf("terminal %v with %v: %v", test.terminal, test.env, got)
		}
	}
}
