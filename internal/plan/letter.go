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
	if len(d.Letters) == maxLetters {
		return &nestor.LimitError{Limit: "letters that were not heard", Max: maxLetters, Asked: 1}
	}
	n := d.Heard + len(d.Letters) + 1
	d.Letters = append(d.Letters, Letter{N: n, ID: in.ID, From: in.From, Content: in.Content})
	d.emit(&nestor.Letter{From: in.From, To: string(d.ID), Content: in.Content})
	return nil
}

// hear takes note of the letters up to n: they were heard.
func (d *decision) hear(n int) {
	heard := min(max(0, n-d.Heard), len(d.Letters))
	d.Letters, d.Heard = d.Letters[heard:], d.Heard+heard
}
