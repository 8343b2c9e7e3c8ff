package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

func newRunsTree() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "tree ID",
		Short:   "Show a run and all below it",
		Example: "nestor runs tree 5a1c2b3d\nnestor runs tree 5a1c2b3d --json",
		Args:    runArgs("a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withRun(cmd, args[0], func(ctx context.Context, client *api.Client, id nestor.ID) error {
				return runsTree(ctx, client, newRunsPage(cmd.OutOrStdout()), id, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func runsTree(ctx context.Context, client *api.Client, page runsPage, id nestor.ID, asJSON bool) error {
	runs, err := client.Tree(ctx, id)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(page.w, map[string][]api.Run{"runs": append([]api.Run{}, runs...)})
	}
	rows := [][]cell{cells("RUN", "STATE", "AGENT", "SPENT", "GRANTED", "TIME", "WHAT")}
	for _, b := range branches(runs) {
		granted, took := "-", "-"
		if b.Limits.BudgetUSD > 0 {
			granted = dollars(b.Limits.BudgetUSD)
		}
		if d := page.took(b.Run); d > 0 {
			took = lasting(d)
		}
		rows = append(rows, []cell{
			{text: strings.Repeat("  ", b.below) + shortID(b.ID)}, stateCell(b.State), {text: orDash(plainLine(b.Agent, 24))},
			{text: dollars(b.CostUSD + b.BelowUSD)}, {text: granted}, {text: took}, {text: whatOf(b.Run)},
		})
	}
	return page.table(rows)
}

// branch is a run in its tree.
type branch struct {
	api.Run
	below int // how far below the first
}

// branches returns each run once, children behind their parent, in the order
// that they came in. A run whose parent is not there is a first one.
func branches(runs []api.Run) []branch {
	known, children := map[nestor.ID]bool{}, map[nestor.ID][]api.Run{}
	for _, run := range runs {
		known[run.ID] = true
	}
	for _, run := range runs {
		parent := run.Parent
		if !known[parent] {
			parent = ""
		}
		children[parent] = append(children[parent], run)
	}
	var list []branch
	var visit func(parent nestor.ID, below int)
	visit = func(parent nestor.ID, below int) {
		for _, run := range children[parent] {
			if known[run.ID] {
				known[run.ID] = false
				list = append(list, branch{run, below})
				visit(run.ID, below+1)
			}
		}
	}
	visit("", 0)
	return list
}
