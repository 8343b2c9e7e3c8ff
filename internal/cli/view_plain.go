package cli

import (
	"io"
	"strings"

	"github.com/dfaf701a/nestor"
)

// plainView prints a line for each thing that is over. With more than one run,
// each line begins with the short id of its run.
type plainView struct {
	story
	w      io.Writer
	closed bool
	failed bool // w did; nothing more is written
}

func (v *plainView) event(e nestor.Event) {
	if v.closed {
		return
	}
	told := v.tell(e)
	r := v.runs[e.Head().Run]
	var wait nestor.Wait
	switch e := e.(type) {
	case *nestor.RunQueued:
		wait = r.wait
	case *nestor.RunWaiting:
		wait = e.Wait
	}
	switch wait.For {
	case nestor.ForSlot, nestor.ForRuns:
		// Nothing else shows that it does not move.
		told = append(told, thing{run: r, mark: markOf(r), text: waits(wait, v.now())})
	}
	v.print(told)
}

func (v *plainView) note(text string) {
	if !v.closed {
		v.print([]thing{{text: oneLine(text)}})
	}
}

func (v *plainView) close(end *nestor.Result) {
	if !v.closed {
		v.closed = true
		v.print(v.end(end))
	}
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
