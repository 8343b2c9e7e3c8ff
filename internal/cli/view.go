package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/dfaf701a/nestor"
)

// view shows people what a tree of runs does, by its events: of one root and of
// all below it, deltas included, in order. It is used by one goroutine only.
type view interface {
	event(e nestor.Event)
	// note says something of our own. From then on the cursor can be seen:
	// who is told "Ctrl-C again ends it now" may do so.
	note(text string)
	// close draws the last state and gives the terminal back. The result is
	// what the caller is about to print; nil means that there is none, or none
	// yet. Later calls do nothing.
	close(end *nestor.Result)
}

// viewOptions say how a view shows. The zero value prints plain lines.
type viewOptions struct {
	Terminal bool                    // live; otherwise plain lines
	Color    bool                    // see colorWanted
	Size     func() (cols, rows int) // of the terminal, asked for each drawing; nil, and what is not positive, mean 80×24
	Root     nestor.ID               // empty means the root of the first event
	Now      func() time.Time        // nil means time.Now
	Verbose  bool                    // also results of tools and thoughts, in full
}

// newView returns a view that writes to w. It writes nothing, and starts
// nothing, before it is told the first thing. When w fails, it is silent from
// then on: what is shown is no part of the run.
func newView(w io.Writer, o viewOptions) view {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := story{forest: newForest(o.Root, o.Now), verbose: o.Verbose}
	if !o.Terminal {
		return &plainView{w: w, story: s}
	}
	size := func() (int, int) {
		cols, rows := 80, 24
		if o.Size != nil {
			if c, r := o.Size(); c > 0 && r > 0 {
				cols, rows = c, r
			}
		}
		return cols, rows
	}
	return &liveView{w: w, story: s, size: size, color: o.Color}
}

// colorWanted tells whether a terminal gets colours. NO_COLOR, if it is not
// empty, and TERM=dumb turn them off.
func colorWanted(terminal bool, getenv func(string) string) bool {
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// shortID is what people see of an ID: its random end, since those of one
// moment begin alike.
func shortID(id nestor.ID) string {
	if len(id) > 8 {
		id = id[len(id)-8:]
	}
	return printable(string(id))
}

// sinceThen writes the duration of what goes on: in whole seconds, so that it
// does not flicker.
func sinceThen(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%ds", int(max(d, 0).Seconds()))
	}
	return lasting(d)
}

// money writes dollars; nothing for none.
func money(usd float64) string {
	switch {
	case !(usd > 0):
		return ""
	case usd < 0.01:
		return "<$0.01"
	}
	return fmt.Sprintf("$%.2f", usd)
}

// tokens writes how many tokens were used; nothing for none.
func tokens(u nestor.Usage) string {
	switch n := u.Input + u.Output + u.CacheRead + u.CacheWrite; {
	case n <= 0:
		return ""
	case n < 1000:
		return fmt.Sprintf("%d tokens", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1fk tokens", float64(n/100)/10)
	default:
		return fmt.Sprintf("%.1fM tokens", float64(n/100_000)/10)
	}
}

// numberOf writes a number of things.
func numberOf(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
