package plan

import (
	"slices"

	"github.com/dfaf701a/nestor"
)

// Write is a letter to the run. One with an id that was written before, and that
// it has not heard yet, changes nothing.
type Write struct {
	ID      string `json:"id"`
	From    string `json:"from"`
	Content string `json:"content"`
}

// How much of what a run has not heard is kept.
const (
	maxLetters    = 32
	maxLetterSize = 16 << 10
)

func (in Write) decide(d *decision) error {
	if err := d.submitted(); err != nil {
		return err
	}
	if d.Cancel != nil {
		return d.Cancel
	}
	if d.Result != nil {
		return nestor.ErrEnded
	}
	if slices.ContainsFunc(d.Letters, func(l Letter) bool { return l.ID == in.ID }) {
		return nil
	}
	if len(in.Content) > maxLetterSize {
		return &nestor.LimitError{Limit: "bytes in a letter", Max: maxLetterSize, Left: maxLetterSize, Asked: float64(len(in.Content))}
	}
	if len(d.Letters) >= maxLetters {
		return &nestor.LimitError{Limit: "letters that were not heard", Max: maxLetters, Asked: 1}
	}
	d.receive(Letter{ID: in.ID, From: in.From, Content: in.Content})
	return nil
}

// receive keeps a letter until it is heard.
func (d *decision) receive(l Letter) {
	d.Written = max(d.Written, d.Heard+len(d.Letters)) + 1
	l.N = d.Written
	d.Letters = append(d.Letters, l)
	d.emit(&nestor.Letter{From: l.From, To: string(d.ID), Content: l.Content})
}

// hear takes note of the letters up to n: they were heard.
func (d *decision) hear(n int) {
	n = min(n, max(d.Written, d.Heard+len(d.Letters)))
	d.Letters = slices.DeleteFunc(d.Letters, func(l Letter) bool { return l.N <= n })
	d.Heard = max(d.Heard, n)
}

// Collect says that the current attempt knows how these children ended: it need
// not be told by a letter.
type Collect struct {
	Fence uint64      `json:"fence"`
	Runs  []nestor.ID `json:"runs"`
}

func (in Collect) decide(d *decision) error {
	if err := d.current(in.Fence); err != nil {
		return err
	}
	for _, id := range in.Runs {
		if c := d.Children[id]; c != nil && c.Status != "" {
			c.Background = false
		}
	}
	d.Letters = slices.DeleteFunc(d.Letters, func(l Letter) bool { return l.Of != "" && slices.Contains(in.Runs, l.Of) })
	return nil
}

// Expected returns the children whose end the run will be told by a letter.
func (r Run) Expected() (list []nestor.ID) {
	for _, id := range r.Live() {
		if r.Children[id].Background {
			list = append(list, id)
		}
	}
	return list
}

// toldSize is how many bytes of a result a letter carries.
const toldSize = 4 << 10

// maxTold is how many bytes of letters there may be for one about the end of a child
// to carry its result.
const maxTold = 64 << 10

// told says how a run ended, to its parent.
func told(r *nestor.Result) string {
	text := "ended with " + string(r.Status)
	if r.Error != nil {
		text += " (" + cut(r.Error.Error(), summarySize) + ")"
	}
	if r.Structured != nil && len(r.Structured) <= toldSize {
		return text + ": " + string(r.Structured)
	}
	if r.Output != "" {
		text += ": " + cut(r.Output, toldSize)
	}
	return text
}

// hearEnd has the run hear of the end of a child that it does not wait for.
func (d *decision) hearEnd(id nestor.ID, c *Child, told string) {
	if !c.Background || d.Result != nil || d.Cancel != nil {
		return
	}
	size := len(told)
	for _, l := range d.Letters {
		size += len(l.Content)
	}
	if size > maxTold { // the document has to hold it, whatever others wrote
		told = cut(told, summarySize/4)
	}
	from := string(id)
	if c.Name != "" {
		from = c.Name + " (run " + from + ")"
	}
	d.receive(Letter{ID: "end of " + string(id), From: from, Content: "It " + told, Of: id})
}
