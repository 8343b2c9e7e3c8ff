package cli

import (
	"io"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
)

// plainView prints a line for each thing that is over. With more than one run,
// each line begins with the short id of its run.
type plainView struct {
	mu sync.Mutex // guards what follows
	story
	w      io.Writer
	closed bool
	failed bool // w did; nothing more is written

	waiting map[nestor.ID]*time.Timer // until it is said that a run has not begun, or what it does
}

// stillAfter is how long a run may wait to begin until that is said, or do what it says
// that it does, such as call the API again: nothing else shows that it does not move.
const stillAfter = time.Second

func (v *plainView) event(e nestor.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	v.print(v.tell(e))
	if r := v.runs[e.Head().Run]; (r.still() || r.busy()) && v.waiting[r.id] == nil {
		if v.waiting == nil {
			v.waiting = map[nestor.ID]*time.Timer{}
		}
		v.waiting[r.id] = time.AfterFunc(stillAfter, func() { v.remind(r) })
	}
}

// remind says that a run has not begun, if it has not, or what it does, if that is not over.
func (v *plainView) remind(r *watched) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.waiting, r.id)
	switch {
	case v.closed:
	case r.still():
		v.print([]thing{{run: r, mark: markOf(r), text: waits(r.wait, v.now())}})
	case r.busy():
		v.print([]thing{{run: r, mark: span{dim, "·"}, text: r.activity, look: dim}})
	}
}

// still tells whether a run waits for others to let it begin, or go on.
func (r *watched) still() bool {
	return (r.state == nestor.Queued || r.state == nestor.Waiting) && (r.wait.For == nestor.ForSlot || r.wait.For == nestor.ForRuns)
}

// busy tells whether a run does something that it has a word for.
func (r *watched) busy() bool { return r.activity != "" && r.ending == "" && !r.state.Ended() }

func (v *plainView) note(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.closed {
		v.print([]thing{{text: oneLine(text)}})
	}
}

func (v *plainView) close(end *nestor.Result) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	v.closed = true
	for _, t := range v.waiting {
		t.Stop()
	}
	v.print(v.end(end))
}

func (v *plainView) print(told []thing) {
	var b strings.Builder
	for _, t := range told {
		head := ""
		if t.run != nil && v.hasChildren() {
			head = shortID(t.run.id) + "  "
		}
		for _, text := range t.plain() {
			b.WriteString(strings.TrimRight(head+text, " "))
			b.WriteByte('\n')
		}
	}
	if b.Len() == 0 || v.failed {
		return
	}
	if _, err := io.WriteString(v.w, b.String()); err != nil {
		v.failed = true
	}
}

// plain returns t in lines without looks.
func (t *thing) plain() []string {
	if t.prose {
		return strings.Split(t.text, "\n")
	}
	var words []string
	for _, word := range []string{t.mark.text, t.title, t.text, t.took} {
		if word != "" {
			words = append(words, word)
		}
	}
	text := strings.Join(words, "  ")
	if t.mark.text != "" {
		text = strings.Replace(text, "  ", " ", 1)
	}
	if t.failure != "" {
		text += ": " + t.failure
	}
	lines := []string{text}
	if t.detail != "" {
		for more := range strings.SplitSeq(t.detail, "\n") {
			lines = append(lines, "    "+more)
		}
	}
	return lines
}
