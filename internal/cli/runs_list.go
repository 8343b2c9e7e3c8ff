package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

type runsListOptions struct {
	all    bool // also those that others started
	state  string
	agent  string
	since  string // a span of time, or a time
	limit  int
	asJSON bool
}

func newRunsList() *cobra.Command {
	var opts runsListOptions
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List runs, the newest first",
		Example: "nestor runs list\nnestor runs list --state running --all\nnestor runs list --since 2h --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			page := newRunsPage(cmd.OutOrStdout())
			q, err := opts.query(cmd, page.now)
			if err != nil {
				return err
			}
			return withRuns(cmd, func(ctx context.Context, client *api.Client) error {
				return runsList(ctx, client, page, q, opts.asJSON)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.all, "all", false, "also runs that other runs started")
	flags.StringVar(&opts.state, "state", "", "only runs in `STATE`: queued, starting, running, waiting, success, partial, error, cancelled")
	flags.StringVar(&opts.agent, "agent", "", "only runs of the agent `NAME`")
	flags.StringVar(&opts.since, "since", "", "only runs made since `WHEN`: 2h for two hours before now, or 2026-01-02, or 2026-01-02T15:04:05Z")
	flags.IntVar(&opts.limit, "limit", 20, "at most `N` runs")
	flags.BoolVar(&opts.asJSON, "json", false, "print one JSON document")
	return cmd
}

func (o runsListOptions) query(cmd *cobra.Command, now time.Time) (api.Query, error) {
	q := api.Query{Roots: !o.all, State: nestor.State(o.state), Agent: o.agent, Limit: o.limit}
	switch q.State {
	case "", nestor.Queued, nestor.Starting, nestor.Running, nestor.Waiting, nestor.Success, nestor.Partial, nestor.Error, nestor.Cancelled:
	default:
		return q, misuse(cmd, "--state %q: there are queued, starting, running, waiting, success, partial, error, cancelled", o.state)
	}
	if o.limit < 1 {
		return q, misuse(cmd, "--limit %d: want 1 or more", o.limit)
	}
	if o.since != "" {
		since, err := timeSince(o.since, now)
		if err != nil {
			return q, misuse(cmd, "--since %q: want a span such as 2h, or a time such as 2026-01-02 or 2026-01-02T15:04:05Z", o.since)
		}
		q.Since = since
	}
	return q, nil
}

// timeSince reads a span of time before now, a time, or a day in now's zone.
func timeSince(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.ParseInLocation(time.DateOnly, text, now.Location())
}

func runsList(ctx context.Context, client *api.Client, page runsPage, q api.Query, asJSON bool) error {
	runs, err := client.Runs(ctx, q)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(page.w, map[string][]api.Run{"runs": append([]api.Run{}, runs...)})
	}
	if len(runs) == 0 {
		_, err := fmt.Fprintln(page.w, "no runs")
		return err
	}
	rows := [][]cell{cells("RUN", "STATE", "AGENT", "COST", "MADE", "WHAT")}
	for _, run := range runs {
		rows = append(rows, []cell{
			{text: shortID(run.ID)}, stateCell(run.State), {text: orDash(plainLine(run.Agent, 24))},
			{text: dollars(run.CostUSD + run.BelowUSD)}, {text: page.time(run.Created)}, {text: whatOf(run)},
		})
	}
	return page.table(rows)
}

// whatOf says of a run what matters most: why it failed, what it does, what
// it was told.
func whatOf(run api.Run) string {
	const most = 60
	switch {
	case run.Error != nil:
		return plainLine(run.Error.Error(), most)
	case !run.State.Ended() && run.Doing != "" && run.Doing != string(run.State):
		return plainLine(run.Doing, most)
	}
	return orDash(plainLine(run.Input, most))
}
