package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/dfaf701a/nestor"
)

// fingerprint names what an agent is asked to do. Tasks that differ by case or
// space alone have the same.
func fingerprint(t nestor.Task) string {
	sum := sha256.Sum256([]byte(t.Agent + "\n" + strings.ToLower(strings.Join(strings.Fields(t.Input), " "))))
	return hex.EncodeToString(sum[:markSize])
}

// recurs refuses a child that would do what a run above it, or this one, is
// doing: it would start the next in the same way, until something else stops them.
func (d *decision) recurs(t nestor.Task) error {
	if t.Agent == "" && strings.TrimSpace(t.Input) == "" {
		return nil // of which nothing is known
	}
	mark := fingerprint(t)
	at := d.Lineage.with(fingerprint(d.Task)).depth(mark)
	if at < 0 {
		return nil
	}
	above := d.ID
	if at < d.Path.Len() {
		above = d.Path.At(at)
	}
	who := "an agent"
	if t.Agent != "" {
		who = "agent " + t.Agent
	}
	return &nestor.LimitError{Limit: "recursion", Asked: 1, Reason: fmt.Sprintf(
		"%s with the same input is run %s, above the one that would be started: do the work here, or ask for a part of it", who, above)}
}

// breaks refuses a child of a run whose children keep failing.
func (d *decision) breaks() error {
	limit := d.Task.Limits.Failures
	if limit == 0 || d.Failed < limit {
		return nil
	}
	return &nestor.LimitError{Limit: "failures", Max: float64(limit), Asked: 1, Reason: fmt.Sprintf(
		"the last %d runs that were started here failed, one after the other: no more are started; say what is wrong instead of trying again", d.Failed)}
}
