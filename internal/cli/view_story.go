package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
)

// story tells what happened, thing by thing, as it is over.
type story struct {
	forest
	verbose bool
	held    *thing // the last text of the root, which may be the result that the caller prints; nil if there is none
	heldRaw string // the same as it was said
}

// thing is something that happened, to be shown once. Its texts are printable.
type thing struct {
	run     *watched // nil for what is our own
	mark    span
	title   string // what it is about: a tool, another run
	text    string // one line, or all lines of what was said
	prose   bool   // text is what was said, to be wrapped, not cut
	look    style  // of text
	took    string
	failure string // the first line of what went wrong
	detail  string // more lines, dim
}

// tell takes e in and returns what is over by it.
func (s *story) tell(e nestor.Event) []thing {
	// What is over is told with what was known before.
	before, known := s.runs[e.Head().Run]
	var since time.Time
	var description string
	if known {
		since = before.thinking
		if done, ok := e.(*nestor.ToolComplete); ok {
			since = time.Time{}
			if c := before.call(done.ToolUseID); c != nil {
				since, description = c.since, c.description
			}
		}
	}
	r, at := s.apply(e), s.time(e)
	lasted := ""
	if !since.IsZero() && at.Sub(since) >= 100*time.Millisecond {
		lasted = lasting(at.Sub(since))
	}
	held := s.held
	var told []thing
	add := func(t thing) {
		t.run = r
		told = append(told, t)
	}
	switch e := e.(type) {
	case *nestor.AgentComplete:
		text := strings.Trim(printable(e.Content), "\n")
		if strings.TrimSpace(text) == "" {
			break
		}
		t := thing{run: r, text: text, prose: true}
		if r.id == s.root {
			s.held, s.heldRaw = &t, e.Content
			break
		}
		add(t)
	case *nestor.ThinkingComplete:
		switch {
		case s.verbose:
			add(thing{text: strings.Trim(printable(e.Thinking), "\n"), prose: true, look: dim})
		case !since.IsZero() && at.Sub(since) >= time.Second:
			add(thing{mark: span{dim, "·"}, text: "thought for " + lasted, look: dim})
		}
	case *nestor.ToolComplete:
		t := thing{mark: span{green, "✓"}, title: oneLine(e.Tool), text: description, took: lasted}
		if t.title == "" {
			t.title = "tool"
		}
		if !e.Success {
			if t.mark, t.failure = (span{red, "✗"}), oneLine(e.Summary); t.failure == "" {
				t.failure = "it failed"
			}
		}
		if s.verbose {
			t.detail, t.failure = strings.Trim(printable(e.Summary), "\n"), ""
		}
		add(t)
	case *nestor.AgentSpawn:
		name := s.run(e.Child).name
		if name == "" {
			name = shortID(e.Child)
		}
		add(thing{mark: span{blue, "+"}, title: name, text: oneLine(e.Description), look: dim})
	case *nestor.ExecutionComplete:
		if r.id != s.root { // the root's end is told by close
			t := endOf(r, at)
			t.text, t.took = oneLine(e.ResultSummary), joinFacts(money(r.cost), t.took)
			add(t)
		}
	case *nestor.RunQueued:
		// Shown by the tree, and by plain lines.
	case *nestor.RunWaiting:
		switch e.Wait.For {
		case nestor.ForLimit, nestor.ForRetry:
			add(thing{mark: span{yellow, "◐"}, text: waits(r.wait, s.now()), look: yellow})
		}
	case *nestor.RunRetry:
		text := fmt.Sprintf("attempt %d", e.Attempt)
		if !e.At.IsZero() {
			text += " at " + watchTime(e.At, s.now())
		}
		add(thing{mark: span{yellow, "↻"}, text: text, look: yellow, failure: oneLine(e.Reason)})
	case *nestor.RunResumed:
		if reason := oneLine(e.Reason); reason != "" {
			add(thing{mark: span{yellow, "↻"}, text: "goes on: " + reason, look: yellow})
		}
	case *nestor.RunCancelled:
		add(thing{mark: span{yellow, "■"}, text: "ends: " + r.ending, look: yellow})
	case *nestor.ErrorEvent:
		add(thing{mark: span{red, "✗"}, text: oneLine(e.Message), look: red})
	case *nestor.Ask:
		text := oneLine(e.Question)
		if text == "" {
			text = "may it use " + oneLine(e.Tool) + "?"
		}
		add(thing{mark: span{magenta, "?"}, text: text, look: magenta, detail: "nestor asks answer " + oneLine(e.AskID) + " " + answersOf(e)})
	case *nestor.Answer:
		text := oneLine(e.Decision)
		if by := oneLine(e.By); by != "" {
			text += ", says " + by
		}
		add(thing{mark: span{magenta, "!"}, text: text, look: magenta})
	case *nestor.Letter:
		add(thing{mark: span{cyan, "→"}, title: oneLine(e.From) + " to " + oneLine(e.To), text: oneLine(e.Content)})
	case *nestor.NetworkDial:
		if s.verbose {
			add(thing{mark: span{dim, "·"}, text: oneLine(connectionText(e)), look: dim})
		}
	case *nestor.WorkspaceWrite:
		if s.verbose {
			add(thing{mark: span{dim, "·"}, text: oneLine(e.Action) + " " + oneLine(e.Path), look: dim})
		}
	}
	if held != nil && (len(told) > 0 || r.id == s.root && goesOnAfter(e)) {
		if s.held == held {
			s.held = nil
		}
		told = append([]thing{*held}, told...)
	}
	return told
}

// goesOnAfter tells whether e shows that a run had not said its last.
func goesOnAfter(e nestor.Event) bool {
	switch e := e.(type) {
	case *nestor.ToolStart, *nestor.AgentDelta, *nestor.ThinkingStart, *nestor.ThinkingDelta:
		return true
	case *nestor.AgentComplete:
		return strings.TrimSpace(e.Content) != ""
	}
	return false
}

// end returns what is left to tell, the root's end last. The text that the
// caller prints as the result is not told here too.
func (s *story) end(result *nestor.Result) []thing {
	var told []thing
	if s.held != nil && (result == nil || strings.TrimSpace(result.Output) != strings.TrimSpace(s.heldRaw)) {
		told = append(told, *s.held)
	}
	s.held = nil
	root, known := s.runs[s.root]
	if !known && result == nil {
		return told
	}
	if !known {
		root = &watched{id: s.root}
	}
	last := *root
	if result != nil {
		last.state, last.failure = result.Status, result.Error
		last.turns, last.cost = max(last.turns, result.Turns), max(last.cost, result.CostUSD)
		if result.Usage != (nestor.Usage{}) {
			last.usage = result.Usage
		}
	}
	if lacked := missingTools(result); lacked != "" {
		told = append(told, thing{mark: span{yellow, "!"}, text: "it was to have tools that there are not: " + lacked, look: yellow})
	}
	t := endOf(&last, s.now())
	t.title = stateWord(&last, s.now())
	usd, usage := s.total()
	usd, usage = usd-root.cost+last.cost, exchange(usage, root.usage, last.usage)
	t.text = joinFacts(turnsOf(last.turns), money(usd), t.took, tokens(usage))
	t.took, t.run, t.look = "", nil, dim
	return append(told, t)
}

// missingTools names the tools that an agent was to have and that there are not, as the
// metadata of its result does; empty if there are none.
func missingTools(result *nestor.Result) string {
	if result == nil {
		return ""
	}
	list, _ := result.Metadata["missing_tools"].([]any)
	var names []string
	for _, name := range list {
		names = append(names, oneLine(fmt.Sprint(name)))
	}
	return strings.Join(names, ", ")
}

// exchange returns sum with one share in it exchanged for another.
func exchange(sum, old, other nestor.Usage) nestor.Usage {
	return sum.Add(other).Add(nestor.Usage{Input: -old.Input, Output: -old.Output, CacheRead: -old.CacheRead, CacheWrite: -old.CacheWrite})
}

// endOf tells how r stands, or how it ended.
func endOf(r *watched, now time.Time) thing {
	t := thing{mark: markOf(r), title: r.name, took: lasting(r.elapsed(now))}
	if t.title == "" {
		t.title = shortID(r.id)
	}
	if r.failure != nil {
		t.failure = oneLine(r.failure.Error())
	}
	return t
}

// markOf is the one character by which people see how a run stands.
func markOf(r *watched) span {
	switch r.state {
	case nestor.Success:
		return span{green, "✓"}
	case nestor.Partial:
		return span{yellow, "◑"}
	case nestor.Error:
		return span{red, "✗"}
	case nestor.Cancelled:
		return span{yellow, "■"}
	case nestor.Queued:
		return span{dim, "○"}
	case nestor.Waiting:
		if r.wait.For == nestor.ForPerson {
			return span{magenta, "?"}
		}
		return span{yellow, "◐"}
	}
	return span{blue, "●"}
}

// stateWord says in words how a run stands.
func stateWord(r *watched, now time.Time) string {
	switch {
	case r.state.Ended():
		return string(r.state)
	case r.ending != "":
		return "ends: " + r.ending
	case r.state == nestor.Queued && r.wait.For == "":
		return "queued"
	case r.state == nestor.Queued, r.state == nestor.Waiting:
		return waits(r.wait, now)
	}
	return oneLine(string(r.state))
}

// waits says what a run waits for, until when, and why.
func waits(w nestor.Wait, now time.Time) string {
	text := "waits"
	switch w.For {
	case nestor.ForRuns:
		text = "comes after " + numberOf(len(w.Runs), "run")
	case nestor.ForSlot:
		text = "waits for a slot"
	case nestor.ForChildren:
		if text = "waits for its children"; len(w.Runs) > 0 {
			text = "waits for " + numberOf(len(w.Runs), "run")
		}
	case nestor.ForPerson:
		text = "asks you"
	case nestor.ForLimit:
		text = "waits for the usage limit"
	case nestor.ForRetry:
		text = "waits to try again"
	default:
		if w.For != "" {
			text = "waits for " + oneLine(string(w.For))
		}
	}
	if !w.Until.IsZero() {
		text += " until " + watchTime(w.Until, now)
	}
	if reason := oneLine(w.Reason); reason != "" {
		text += ": " + reason
	}
	return text
}

// watchTime writes a time as the person's watch shows it, with the day if it is not
// within a day of now.
func watchTime(at, now time.Time) string {
	at = at.In(now.Location())
	if d := at.Sub(now); d > 18*time.Hour || d < -18*time.Hour {
		return at.Format("Jan 2, 15:04")
	}
	return at.Format("15:04:05")
}

func turnsOf(n int) string {
	if n <= 0 {
		return ""
	}
	return numberOf(n, "turn")
}

// joinFacts joins what is not empty.
func joinFacts(parts ...string) string {
	var some []string
	for _, p := range parts {
		if p != "" {
			some = append(some, p)
		}
	}
	return strings.Join(some, " · ")
}

// answersOf says what a question can be answered with.
func answersOf(e *nestor.Ask) string {
	switch {
	case e.Tool != "":
		return "allow|deny"
	case len(e.Options) > 0:
		return oneLine(strings.Join(e.Options, "|"))
	}
	return "TEXT"
}
