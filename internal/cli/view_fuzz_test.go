package cli

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/dfaf701a/nestor"
)

// bytesReader gives out what a fuzzer says, bit by bit; zeros behind the end.
type bytesReader struct{ data []byte }

func (b *bytesReader) byte() byte {
	if len(b.data) == 0 {
		return 0
	}
	c := b.data[0]
	b.data = b.data[1:]
	return c
}

func (b *bytesReader) text() string {
	n := int(b.byte())
	if n < 250 {
		n %= 16 // most are short
	}
	n = min(n, len(b.data))
	text := string(b.data[:n])
	b.data = b.data[n:]
	return text
}

// event makes any event, with any text in it.
func (b *bytesReader) event() nestor.Event {
	h := head(int(b.byte() % 12))
	states := []nestor.State{nestor.Success, nestor.Partial, nestor.Error, nestor.Cancelled, nestor.State(b.text())}
	waits := []nestor.WaitFor{nestor.ForRuns, nestor.ForSlot, nestor.ForChildren, nestor.ForPerson, nestor.ForLimit, nestor.ForRetry, "else"}
	other := runID(int(b.byte() % 12))
	switch b.byte() % 22 {
	case 0:
		return &nestor.RunQueued{Header: h, Parent: other, Agent: b.text()}
	case 1:
		return &nestor.AgentSpawn{Header: h, Child: other, Agent: b.text(), Description: b.text()}
	case 2:
		return &nestor.ExecutionStart{Header: h, Agent: b.text()}
	case 3:
		return &nestor.AgentStart{Header: h, Agent: b.text()}
	case 4, 5:
		return &nestor.AgentDelta{Header: h, Delta: b.text()}
	case 6:
		return &nestor.AgentComplete{Header: h, Content: b.text()}
	case 7:
		return &nestor.ThinkingDelta{Header: h, Delta: b.text()}
	case 8:
		return &nestor.ThinkingComplete{Header: h, Thinking: b.text()}
	case 9, 10:
		return &nestor.ToolStart{Header: h, Tool: b.text(), Description: b.text(), ToolUseID: fmt.Sprint(b.byte() % 8)}
	case 11:
		return &nestor.ToolComplete{Header: h, Tool: b.text(), Summary: b.text(), Success: b.byte()%2 == 0, ToolUseID: fmt.Sprint(b.byte() % 8)}
	case 12:
		return &nestor.ExecutionProgress{Header: h, Activity: b.text(), Turns: int(b.byte()), CostUSD: float64(b.byte()) / 10, Usage: &nestor.Usage{Input: int(b.byte()) << b.byte()}}
	case 13:
		return &nestor.RunWaiting{Header: h, Wait: nestor.Wait{For: waits[int(b.byte())%len(waits)], Reason: b.text(), Until: time.Now().Add(time.Duration(b.byte()) * time.Hour)}}
	case 14:
		return &nestor.Ask{Header: h, AskID: b.text(), Question: b.text(), Tool: b.text()}
	case 15:
		return &nestor.Answer{Header: h, AskID: b.text(), Decision: b.text(), By: b.text()}
	case 16:
		return &nestor.RunRetry{Header: h, Reason: b.text(), Attempt: int(b.byte()), At: time.Now()}
	case 17:
		return &nestor.RunResumed{Header: h, Reason: b.text()}
	case 18:
		return &nestor.RunCancelled{Header: h, Reason: b.text(), Cause: nestor.Cause{Kind: nestor.Kind(b.text())}}
	case 19:
		return &nestor.ErrorEvent{Header: h, Message: b.text()}
	case 20:
		if b.byte()%2 == 0 {
			return &nestor.NetworkDial{Header: h, Host: b.text(), Port: 1, Rule: b.text(), Reason: b.text()}
		}
		return &nestor.Letter{Header: h, From: b.text(), To: b.text(), Content: b.text()}
	}
	return &nestor.ExecutionComplete{Header: h, Status: states[int(b.byte())%len(states)], ResultSummary: b.text(), Error: &nestor.Failure{Message: b.text()}}
}

// Whatever happens, on a terminal of any size that changes at any time: no line
// is wider than the terminal, nothing that scrolled up is drawn over or drawn
// twice, nothing is written that is not ours to write, and the terminal is given
// back.
func FuzzView(f *testing.F) {
	all := []byte{80, 24, 3}
	for i := range byte(22) {
		all = append(all, 2, i%12, 1, 'x', (i+1)%12, i, 5)
		all = append(all, "wo\x1b[rd"...)
		all = append(all, 4, 'm', 'o', 'r', 'e', 0, 30+i, 5+i%9)
	}
	f.Add(all)
	f.Add([]byte("\x14\x0a\x02\x02\x00\x00\x00\x04\x10some words here.\x00\x10\x03\x01"))
	f.Fuzz(checkView)
}

// The same for what a generator thinks of, in each run of the tests.
func TestViewHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 100, 1500).Draw(rt, "data")
		if !t.Run("", func(t *testing.T) { checkView(t, data) }) {
			rt.Fatalf("see above")
		}
	})
}

// checkView plays what data says.
func checkView(t *testing.T, data []byte) {
	synctest.Test(t, func(t *testing.T) {
		b := &bytesReader{data: data}
		cols, rows := 12+int(b.byte()%100), 2+int(b.byte()%40)
		s := newScreen(cols, rows)
		flags := b.byte()
		s.reflow = flags&1 != 0
		fmt.Fprint(s, "before;\r\n")
		v := newView(s, viewOptions{Terminal: true, Color: flags&2 != 0, Verbose: flags&4 != 0, Size: s.size, Root: runID(0)})
		defer v.close(nil)
		check := func() {
			t.Helper()
			if p := s.problem(); p != "" {
				t.Fatalf("%s\n%s", p, s)
			}
		}
		notes := 0
		for len(b.data) > 0 {
			switch b.byte() % 8 {
			case 0:
				s.resize(12+int(b.byte()%100), 2+int(b.byte()%40))
			case 1:
				time.Sleep(redrawEvery * time.Duration(b.byte()))
			case 2:
				v.note(fmt.Sprintf("n%d;", notes))
				notes++
			default:
				v.event(b.event())
			}
			synctest.Wait()
			check()
		}
		v.note("last;")
		v.close(&nestor.Result{Status: nestor.Success})
		check()
		all, _ := s.all()
		seen := strings.Join(all, "\n")
		marks := []string{"before;"}
		for i := range notes {
			marks = append(marks, fmt.Sprintf("n%d;", i))
		}
		rest := seen
		for _, m := range append(marks, "last;") {
			_, after, found := strings.Cut(rest, m)
			if !found {
				t.Fatalf("%s is not there, or not in order:\n%s", m, seen)
			}
			rest = after
		}
		if w := s.withheld(); w != "" {
			t.Fatalf("after close: %s", w)
		}
	})
}
