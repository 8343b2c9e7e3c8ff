package claude

import (
	"math"
	"testing"
)

func said(id, parent string, in, out int) *Assistant {
	return &Assistant{MessageID: id, ParentToolUseID: parent, Usage: Usage{InputTokens: in, OutputTokens: out}}
}

func ended(cost float64, tokens int) *Result {
	return &Result{Header: Header{Subtype: ResultSuccess}, TotalCostUSD: cost, ModelUsage: map[string]ModelUsage{"m": {OutputTokens: tokens, CostUSD: cost}}}
}

func about(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9 {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestMeterCountsEachCallOnce(t *testing.T) {
	var meter Meter
	for _, m := range []*Assistant{
		said("a", "", 100, 1), // thinking
		said("a", "", 100, 1), // text: repeats the usage
		said("b", "task", 10, 2),
		said("a", "", 100, 30), // tool use: the usage has grown
		said("b", "task", 10, 2),
		said("c", "task", 5, 1),
		said("d", "other", 1, 1),
		said("e", "", 200, 5),
	} {
		meter.Add(m)
	}
	equal(t, "main", meter.Main(), Usage{InputTokens: 300, OutputTokens: 35})
	equal(t, "task", meter.Subagent("task"), Usage{InputTokens: 15, OutputTokens: 3})
	equal(t, "subagents", meter.Subagents(), Usage{InputTokens: 16, OutputTokens: 4})
	equal(t, "nobody", meter.Subagent("x"), Usage{})
}

func TestMeterTakesFinalOutputFromStream(t *testing.T) {
	var meter Meter
	start := &StreamEvent{Kind: EventMessageStart, MessageID: "a", Usage: Usage{InputTokens: 100, OutputTokens: 1}}
	meter.Add(start)
	meter.Add(&StreamEvent{Kind: EventMessageStart, MessageID: "b", ParentToolUseID: "task", Usage: Usage{InputTokens: 3, OutputTokens: 1}})
	meter.Add(said("a", "", 100, 1))
	meter.Add(&StreamEvent{Kind: EventMessageDelta, Usage: Usage{OutputTokens: 50}})
	meter.Add(&StreamEvent{Kind: EventMessageDelta, ParentToolUseID: "task", Usage: Usage{OutputTokens: 8}})
	meter.Add(&StreamEvent{Kind: EventMessageStop})
	meter.Add(said("a", "", 100, 1))                                                  // the last block comes after the stream's numbers
	meter.Add(&StreamEvent{Kind: EventMessageDelta, Usage: Usage{OutputTokens: 999}}) // of no message
	equal(t, "main", meter.Main(), Usage{InputTokens: 100, OutputTokens: 50})
	equal(t, "task", meter.Subagent("task"), Usage{InputTokens: 3, OutputTokens: 8})
}

func TestMeterTurns(t *testing.T) {
	var meter Meter
	equal(t, "before", meter.Last().CostUSD, 0)

	meter.Add(ended(0.10, 100))
	about(t, "first turn", meter.Last().CostUSD, 0.10)
	meter.Add(ended(0.25, 250))
	about(t, "second turn", meter.Last().CostUSD, 0.15)
	equal(t, "tokens of the second turn", meter.Last().Models["m"].OutputTokens, 150)
	about(t, "total", meter.Total().CostUSD, 0.25)

	meter.Add(&ConversationReset{})
	meter.Add(ended(0, 0)) // the /clear itself
	about(t, "turn of /clear", meter.Last().CostUSD, 0)
	meter.Add(ended(0.40, 400))
	about(t, "turn after /clear", meter.Last().CostUSD, 0.40)
	about(t, "total over /clear", meter.Total().CostUSD, 0.65)
	equal(t, "tokens over /clear", meter.Total().Models["m"].OutputTokens, 650)
}

// The total after a reset may be larger than the one before it.
func TestMeterExpensiveTurnAfterReset(t *testing.T) {
	var meter Meter
	meter.Add(ended(0.10, 100))
	meter.Add(&ConversationReset{})
	meter.Add(ended(0.40, 400))
	about(t, "turn", meter.Last().CostUSD, 0.40)
	about(t, "total", meter.Total().CostUSD, 0.50)
}

func TestMeterUnannouncedReset(t *testing.T) {
	var meter Meter
	meter.Add(ended(0.50, 500))
	meter.Add(ended(0.10, 100))
	about(t, "turn", meter.Last().CostUSD, 0.10)
	about(t, "total", meter.Total().CostUSD, 0.60)
	equal(t, "tokens", meter.Total().Models["m"].OutputTokens, 600)
}

// A result without totals, as after a crash, must not make the next one count
// the whole session again.
func TestMeterZeroedResult(t *testing.T) {
	var meter Meter
	meter.Add(ended(0.50, 500))
	meter.Add(&Result{Header: Header{Subtype: ResultErrorDuringExecution}, IsError: true})
	about(t, "crashed turn", meter.Last().CostUSD, 0)
	meter.Add(ended(0.60, 600))
	about(t, "next turn", meter.Last().CostUSD, 0.10)
	about(t, "total", meter.Total().CostUSD, 0.60)
}

func TestMeterContinue(t *testing.T) {
	var meter Meter
	meter.Continue(ended(2, 2000)) // of the process before
	meter.Add(ended(2.5, 2500))
	about(t, "turn", meter.Last().CostUSD, 0.5)
	about(t, "total", meter.Total().CostUSD, 0.5)
	equal(t, "tokens", meter.Total().Models["m"].OutputTokens, 500)
}

func TestMeterTotalIsACopy(t *testing.T) {
	var meter Meter
	meter.Add(ended(1, 10))
	total := meter.Total()
	meter.Add(ended(2, 20))
	equal(t, "earlier total", total.Models["m"].OutputTokens, 10)
}
