package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
)

// runsPage is where runs are printed.
type runsPage struct {
	w      io.Writer
	now    time.Time
	person bool // a person reads it on a terminal: times are relative
	colour bool
}

func newRunsPage(w io.Writer) runsPage {
	p := runsPage{w: w, now: time.Now()}
	if file, ok := w.(*os.File); ok {
		info, err := file.Stat()
		p.person = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	p.colour = p.person && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return p
}

// cell is one field of a table.
type cell struct {
	text   string
	colour string // the number of an ANSI colour; empty means none
}

// table prints rows whose columns are as wide as the widest cell.
func (p runsPage) table(rows [][]cell) error {
	var widths []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], textWidth(c.text))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, c := range row {
			text := c.text
			if p.colour && c.colour != "" {
				text = "\x1b[" + c.colour + "m" + text + "\x1b[0m"
			}
			line.WriteString(text + strings.Repeat(" ", widths[i]-textWidth(c.text)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(p.w, b.String())
	return err
}

// cells are those of a row without colour.
func cells(texts ...string) []cell {
	row := make([]cell, len(texts))
	for i, text := range texts {
		row[i].text = text
	}
	return row
}

func stateCell(s nestor.State) cell {
	colour := ""
	switch s {
	case nestor.Success:
		colour = "32"
	case nestor.Error:
		colour = "31"
	case nestor.Partial, nestor.Waiting:
		colour = "33"
	case nestor.Running, nestor.Starting:
		colour = "36"
	case nestor.Cancelled:
		colour = "2"
	}
	return cell{plainLine(string(s), 20), colour}
}

// time prints when something was, "-" for what was not.
func (p runsPage) time(t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case !p.person:
		return t.UTC().Format(time.RFC3339)
	case t.After(p.now):
		return "in " + lasting(t.Sub(p.now))
	}
	return lasting(p.now.Sub(t)) + " ago"
}

// lasting prints d for people.
func lasting(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// dollars prints an amount, exact enough to see that a little is not nothing.
func dollars(usd float64) string {
	if usd == 0 || math.Abs(usd) >= 0.01 {
		return fmt.Sprintf("$%.2f", usd)
	}
	return fmt.Sprintf("$%.4f", usd)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// plainLine returns text as one printable line of at most so many columns.
func plainLine(text string, most int) string {
	text = clip(text, 8*most+64) // enough of it
	return cutText(strings.Join(strings.Fields(printable(text)), " "), most)
}
