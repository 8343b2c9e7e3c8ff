package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

func newRunsShow() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a run: what it does, what it cost, what came of it",
		Example: "nestor runs show 5a1c2b3d\nnestor runs show 5a1c2b3d --json",
		Args:    runArgs("a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withRun(cmd, args[0], func(ctx context.Context, client *api.Client, id nestor.ID) error {
				return runsShow(ctx, client, newRunsPage(cmd.OutOrStdout()), id, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func runsShow(ctx context.Context, client *api.Client, page runsPage, id nestor.ID, asJSON bool) error {
	run, err := client.Run(ctx, id)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(page.w, run)
	}
	if err := page.table(page.facts(run)); err != nil || run.Result == nil {
		return err
	}
	return printResult(page.w, run.Result)
}

// facts are the rows of one run. What is not so, or not known, has none.
func (p runsPage) facts(run api.Run) [][]cell {
	var rows [][]cell
	add := func(name, text string) {
		if text != "" {
			rows = append(rows, cells(name, text))
		}
	}
	add("run", plainLine(string(run.ID), 60))
	state := stateCell(run.State)
	rows = append(rows, []cell{{text: "state"}, state})
	if !run.State.Ended() {
		add("doing", plainLine(run.Doing, 200))
	}
	add("agent", plainLine(run.Agent, 60))
	add("provider", plainLine(strings.Join(strings.Fields(run.Provider+" "+run.Model), " "), 80))
	add("swarm", plainLine(run.Swarm, 60))
	add("folder", plainLine(run.Dir, 300))
	add("input", plainLine(run.Input, 200))
	if run.Parent != "" {
		add("parent", plainLine(string(run.Parent), 60))
		add("root", fmt.Sprintf("%s, %d above", plainLine(string(run.Root), 60), run.Depth))
	}
	for _, t := range []struct {
		name string
		time time.Time
	}{{"made", run.Created}, {"started", run.Started}, {"ended", run.Ended}} {
		if !t.time.IsZero() {
			add(t.name, p.time(t.time))
		}
	}
	if !run.Deadline.IsZero() && !run.State.Ended() {
		add("deadline", p.time(run.Deadline))
	}
	if took := p.took(run); took > 0 {
		add("took", lasting(took))
	}
	if run.Attempt > 1 || run.Retries > 0 || run.Resumes > 0 {
		add("attempt", fmt.Sprintf("%d (failed connections: %d, lost workers: %d)", run.Attempt, run.Retries, run.Resumes))
	}
	add("worker", plainLine(run.Worker, 80))
	add("session", plainLine(run.Session, 80))
	add("cost", costOf(run))
	if run.Usage != (nestor.Usage{}) {
		u := run.Usage
		add("tokens", fmt.Sprintf("%d in, %d out, %d read from and %d written to the cache", u.Input, u.Output, u.CacheRead, u.CacheWrite))
	}
	if run.Turns > 0 {
		add("turns", outOf(fmt.Sprint(run.Turns), run.Limits.Turns > 0, fmt.Sprint(run.Limits.Turns)))
	}
	if run.Error != nil {
		rows = append(rows, []cell{{text: "error"}, {plainLine(run.Error.Error(), 500), "31"}})
	}
	if c, ok := api.ChangesOf(run.Result); ok && c.Ref != "" {
		add("changes", fmt.Sprintf("%s on another machine; 'nestor runs diff %s' shows them", filesOf(c.Count), plainLine(string(run.ID), 60)))
	}
	if w, ok := api.WorkspaceOf(run.Result); ok {
		add("workspace", spaceLine(w))
	}
	for i, child := range run.Children {
		name := "children"
		if i > 0 {
			name = ""
		}
		rows = append(rows, cells(name, plainLine(string(child), 60)))
	}
	if run.Archived {
		add("archived", "yes")
	}
	return rows
}

func costOf(run api.Run) string {
	cost := dollars(run.CostUSD)
	if run.BelowUSD != 0 {
		cost = fmt.Sprintf("%s, and %s below it", cost, dollars(run.BelowUSD))
	}
	return outOf(cost, run.Limits.BudgetUSD > 0, dollars(run.Limits.BudgetUSD))
}

func outOf(text string, limited bool, limit string) string {
	if limited {
		return text + ", of " + limit
	}
	return text
}

// took is how long a run has been going, or was.
func (p runsPage) took(run api.Run) time.Duration {
	switch {
	case run.Started.IsZero():
		return 0
	case run.Ended.IsZero():
		return p.now.Sub(run.Started)
	}
	return run.Ended.Sub(run.Started)
}

func printResult(w io.Writer, r *nestor.Result) error {
	var b strings.Builder
	if len(r.Structured) > 0 {
		fmt.Fprintf(&b, "\n%s\n", printable(string(r.Structured)))
	} else if r.Output != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimRight(printable(r.Output), "\n"))
	}
	if r.Truncated && r.File != "" {
		fmt.Fprintf(&b, "… all of it is in %s\n", plainLine(r.File, 300))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
