package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
)

const (
	redrawEvery = 100 * time.Millisecond
	maxPending  = 256 << 10 // bytes of things that wait for the next drawing
)

// What the view tells the terminal, beside looks. Nothing else of the kind is
// written.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	beginFrame = "\x1b[?2026h" // show nothing until endFrame, where that is known
	endFrame   = "\x1b[?2026l"
	wrapOff    = "\x1b[?7l"
	wrapOn     = "\x1b[?7h"
	eraseLine  = "\x1b[K" // from the cursor on
	eraseDown  = "\x1b[J" // likewise
)

// liveView is a view on a terminal. What is over scrolls up; below it a block
// shows what goes on, and is drawn again and again.
//
// Between two drawings the cursor, unseen, is at the beginning of the block, so
// that a drawing needs no way up: when the terminal changes its size meanwhile,
// it moves the cursor with the text, and what scrolled up stays above it. No line
// touches the last column, so no terminal joins or breaks lines.
type liveView struct {
	w     io.Writer
	size  func() (cols, rows int)
	color bool

	stop    chan struct{}  // closed by close; nil while the goroutine was not started
	stopped sync.WaitGroup // for the goroutine

	mu      sync.Mutex // guards all below, and is held while w is written to
	story   story
	pending []thing // over, but not drawn
	bytes   int     // of pending, about
	drawn   []byte  // the block as it is on the screen
	prose   bool    // the last thing was something that was said
	top     bool    // nothing was drawn yet
	noted   bool    // the cursor stays visible
	closed  bool
	failed  bool // w did; nothing more is written
}

func (v *liveView) event(e nestor.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	v.start()
	v.add(v.story.tell(e)...)
}

func (v *liveView) note(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	v.start()
	v.noted = true
	v.add(thing{text: oneLine(text), look: yellow})
	v.draw()
}

func (v *liveView) close(end *nestor.Result) {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return
	}
	v.closed = true
	started := v.stop != nil
	v.add(v.story.end(end)...)
	if started || len(v.pending) > 0 {
		v.draw()
	}
	v.mu.Unlock()
	if started {
		close(v.stop)
		v.stopped.Wait()
	}
}

// start begins to draw, once. The caller holds mu.
func (v *liveView) start() {
	if v.stop != nil {
		return
	}
	v.stop, v.top = make(chan struct{}), true
	v.stopped.Go(func() {
		tick := time.NewTicker(redrawEvery)
		defer tick.Stop()
		for {
			select {
			case <-v.stop:
				return
			case <-tick.C:
				v.mu.Lock()
				if !v.closed {
					v.draw()
				}
				v.mu.Unlock()
			}
		}
	})
}

// add takes things that are over. When too many wait, who brings them waits for
// the terminal.
func (v *liveView) add(told ...thing) {
	for _, t := range told {
		v.bytes += len(t.text) + len(t.detail) + len(t.failure)
	}
	if v.pending = append(v.pending, told...); v.bytes > maxPending {
		v.draw()
	}
}

// draw brings the screen up to date: one write, or none if nothing changed.
func (v *liveView) draw() {
	if v.failed {
		return
	}
	cols, rows := v.size()
	width := max(cols-1, 1)

	var over []byte
	for _, t := range v.pending {
		gap := t.prose || v.prose // what was said stands free
		v.prose = t.prose
		lines := t.lines(v.story.hasChildren(), width)
		if gap && !v.top {
			lines = append([]line{nil}, lines...)
		}
		v.top = false
		for _, l := range lines {
			over = append(l.cut(width).encode(over, v.color), eraseLine+"\r\n"...)
		}
	}
	v.pending, v.bytes = nil, 0

	var block []byte
	if !v.closed {
		lines := v.story.block(width, rows-1)
		if room := rows - 1 - len(lines); room > 0 && !v.top && len(lines) > 0 {
			lines = append([]line{nil}, lines...)
		}
		for i, l := range lines {
			if i > 0 {
				block = append(block, eraseLine+"\r\n"...)
			}
			block = l.cut(width).encode(block, v.color)
		}
		block = append(block, eraseDown+"\r"...)
		if len(lines) > 1 {
			block = fmt.Appendf(block, "\x1b[%dA", len(lines)-1)
		}
	} else {
		block = append(block, eraseDown...)
	}
	if len(over) == 0 && slices.Equal(block, v.drawn) && !v.closed {
		return
	}
	v.drawn = block

	frame := []byte(beginFrame + hideCursor + "\r")
	frame = append(frame, over...)
	frame = append(frame, wrapOff...)
	frame = append(frame, block...)
	frame = append(frame, wrapOn...)
	if v.closed || v.noted {
		frame = append(frame, showCursor...)
	}
	frame = append(frame, endFrame...)
	if _, err := v.w.Write(frame); err != nil {
		v.failed = true
	}
}

// lines returns t as the terminal shows it. With children about, what is not of
// the root says whose it is.
func (t *thing) lines(children bool, cols int) []line {
	var head line
	if children && t.run != nil && t.run.parent != nil {
		name := t.run.name
		if name == "" {
			name = shortID(t.run.id)
		}
		if name != t.title { // it tells of itself
			head = line{{bold, cutText(name, max(cols/3, 1))}, {normal, "  "}}
		}
	}
	if t.prose {
		return paragraph(head, t.look, t.text, len(head), cols)
	}
	l := head
	if t.mark.text != "" {
		l = append(l, t.mark, span{normal, " "})
	}
	if t.title != "" {
		l = append(l, span{bold, t.title}, span{normal, "  "})
	}
	// How long it took is worth more than the end of what it was.
	after := line{}
	if t.took != "" {
		after = line{{normal, "  "}, {dim, t.took}}
	}
	if room := cols - l.width() - after.width(); t.text != "" && room > 3 {
		l = append(l, span{t.look, cutText(t.text, room)})
	} else if t.text == "" && len(after) > 0 {
		after = after[1:]
	}
	lines := []line{append(l, after...).cut(cols)}
	if t.failure != "" {
		lines = append(lines, line{{normal, "  "}, {red, t.failure}}.cut(cols))
	}
	if t.detail != "" {
		lines = append(lines, paragraph(nil, dim, t.detail, 2, cols)...)
	}
	return lines
}

// lastLines returns the last lines of a text that grows, wrapped.
func lastLines(text string, look style, cols, n int) []line {
	// A line is at least a byte; what is before it cannot be seen.
	wrapped := wrapText(strings.TrimLeft(printable(clipStart(text, 4*n*max(cols, 1))), "\n"), cols)
	var lines []line
	for _, text := range wrapped[max(0, len(wrapped)-n):] {
		lines = append(lines, line{{look, text}})
	}
	return lines
}
