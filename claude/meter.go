package claude

import "maps"

// Meter adds up what one session uses. Give it every message, in order. It
// counts each API call once, however many messages repeat its usage, keeps
// the main loop and the subagents apart, and turns the running totals of the
// results into what each turn added, also across a cleared conversation.
//
// The zero Meter is ready. It remembers one small entry for each API call. It
// is not for concurrent use.
type Meter struct {
	calls  map[string]call   // by message id
	open   map[string]string // message id by parent tool use, from the stream
	main   Usage
	agents map[string]Usage // by parent tool use

	seen  Spend // running totals of the last result
	last  Turn
	spent Spend
}

// Spend is what was spent, main loop, subagents and helpers together.
type Spend struct {
	CostUSD float64 // an estimate
	Models  map[string]ModelUsage
}

// Turn is what one turn added.
type Turn struct {
	Spend
	Usage Usage // the main loop's part, as the result has it
}

type call struct {
	parent string
	usage  Usage
}

// Continue makes the next result count from last instead of from nothing: a
// resumed session goes on from the totals it had. Give it the last result of
// the earlier process.
func (t *Meter) Continue(last *Result) {
	t.seen = Spend{CostUSD: last.TotalCostUSD, Models: last.ModelUsage}
}

// Add counts msg.
func (t *Meter) Add(msg Message) {
	switch m := msg.(type) {
	case *Assistant:
		id := m.MessageID
		if id == "" {
			id = m.UUID
		}
		t.count(id, m.ParentToolUseID, m.Usage)
	case *StreamEvent:
		t.stream(m)
	case *Result:
		t.turn(m)
	case *ConversationReset:
		t.seen = Spend{} // the CLI's totals start again
	}
}

// Last returns what the turn of the last result added; zero before the first.
func (t *Meter) Last() Turn { return t.last }

// Total returns what all turns added together.
func (t *Meter) Total() Spend {
	return Spend{CostUSD: t.spent.CostUSD, Models: maps.Clone(t.spent.Models)}
}

// Main returns the tokens of the main loop's API calls seen so far. Unlike
// the results it includes a turn that is not over. Counts of output are final
// only if the stream events were added too.
func (t *Meter) Main() Usage { return t.main }

// Subagent returns the same for the subagent that a tool call started.
func (t *Meter) Subagent(toolUseID string) Usage { return t.agents[toolUseID] }

// Subagents returns the same for all subagents together.
func (t *Meter) Subagents() (sum Usage) {
	for _, u := range t.agents {
		sum.add(u, 1)
	}
	return sum
}

// count takes usage as the state of the API call id, and replaces what an
// earlier message said of it.
func (t *Meter) count(id, parent string, usage Usage) {
	if t.calls == nil {
		t.calls = make(map[string]call)
		t.agents = make(map[string]Usage)
	}
	before, known := t.calls[id]
	if known {
		parent = before.parent
	}
	now := before.usage.most(usage)
	t.calls[id] = call{parent, now}
	now.add(before.usage, -1)
	if parent == "" {
		t.main.add(now, 1)
		return
	}
	sum := t.agents[parent]
	sum.add(now, 1)
	t.agents[parent] = sum
}

// stream counts events, which alone have the final output of a call.
func (t *Meter) stream(m *StreamEvent) {
	switch m.Kind {
	case EventMessageStart:
		if t.open == nil {
			t.open = make(map[string]string)
		}
		t.open[m.ParentToolUseID] = m.MessageID
		t.count(m.MessageID, m.ParentToolUseID, m.Usage)
	case EventMessageDelta:
		if id, ok := t.open[m.ParentToolUseID]; ok {
			t.count(id, m.ParentToolUseID, m.Usage)
		}
	case EventMessageStop:
		delete(t.open, m.ParentToolUseID)
	}
}

func (t *Meter) turn(m *Result) {
	t.last = Turn{Usage: m.Usage}
	if m.TotalCostUSD == 0 && len(m.ModelUsage) == 0 {
		// A crash or a startup failure leaves its totals empty: that is not a
		// restart from zero, and the next result may go on from the old ones.
		return
	}
	if m.TotalCostUSD < t.seen.CostUSD {
		t.seen = Spend{} // cleared, and the message that says so was not added
	}
	t.last.CostUSD = m.TotalCostUSD - t.seen.CostUSD
	t.last.Models = make(map[string]ModelUsage, len(m.ModelUsage))
	if t.spent.Models == nil {
		t.spent.Models = make(map[string]ModelUsage)
	}
	for model, now := range m.ModelUsage {
		added := now.minus(t.seen.Models[model])
		t.last.Models[model] = added
		t.spent.Models[model] = t.spent.Models[model].plus(added)
	}
	t.spent.CostUSD += t.last.CostUSD
	t.seen = Spend{CostUSD: m.TotalCostUSD, Models: m.ModelUsage}
}
