package claude_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

// numbered is the i-th line of a CLI that counts, of about 600 bytes.
func numbered(i int) string {
	return fmt.Sprintf(`{"type":"assistant","message":{"id":"%d","role":"assistant","content":[{"type":"text","text":"%s"}]}}`, i, strings.Repeat("x", 500))
}

// numberedTo is where it ends: far more than is read at once.
const numberedTo = 20_000

// readings are CLIs that say much at once.
var readings = map[string]claudetest.Script{
	"counts": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		for i := range numberedTo {
			if i%100 == 0 { // lines that are no messages come between
				c.SendRaw(`{"type":"keep_alive"}`)
				c.SendRaw("noise")
			}
			c.SendRaw(numbered(i))
		}
		_, err := c.Ask(permissionAsk)
		must(c, "a request behind a flood is answered", err == nil)
		c.SendRaw(success(p, "done"))
		atEnd(c)
	},
}

func TestFloodComesInItsOrder(t *testing.T) {
	t.Parallel()
	i := 0
	for msg, err := range claude.Query(bounded(t), "go", fake("counts")) {
		if err != nil {
			t.Fatal(err)
		}
		m, ok := msg.(*claude.Assistant)
		if !ok {
			continue
		}
		if got, want := string(m.Raw()), numbered(i); got != want || m.MessageID != fmt.Sprint(i) {
			t.Fatalf("message %d is %s, of the line %.100s", i, m.MessageID, got)
		}
		i++
	}
	if i != numberedTo {
		t.Errorf("%d messages came, want %d", i, numberedTo)
	}
}

// Who keeps one message in a hundred keeps no other's memory.
func TestKeptMessageHoldsItsOwnLineAlone(t *testing.T) {
	var kept []claude.Message
	before := inUse()
	for msg, err := range claude.Query(bounded(t), "go", fake("counts")) {
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := msg.(*claude.Assistant); ok && strings.HasSuffix(m.MessageID, "00") {
			kept = append(kept, m)
		}
	}
	size := (inUse() - before) / len(kept)
	if most := 4 * len(numbered(0)); size > most {
		t.Errorf("each of %d kept messages holds %d bytes, want at most %d", len(kept), size, most)
	}
	runtime.KeepAlive(kept)
}

// inUse is how much memory is reachable.
func inUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
