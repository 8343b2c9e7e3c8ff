package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor/api"
)

func newRunsSearch() *cobra.Command {
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "search WORDS...",
		Short: "Find what was said in runs",
		Long: `Find what was said in runs: texts in which all the words occur, the newest
first. A word that ends in * stands for all that begin with it; "in quotes"
words must follow each other.`,
		Example: "nestor runs search race condition\nnestor runs search 'migrat*' --json",
		Args: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(strings.Join(args, " ")) == "" {
				return misuse(cmd, "takes words to search for, got none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return misuse(cmd, "--limit %d: want 1 or more", limit)
			}
			return withRuns(cmd, func(ctx context.Context, client *api.Client) error {
				return runsSearch(ctx, client, newRunsPage(cmd.OutOrStdout()), strings.Join(args, " "), limit, asJSON)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "at most `N` texts")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func runsSearch(ctx context.Context, client *api.Client, page runsPage, text string, limit int, asJSON bool) error {
	hits, err := client.Search(ctx, text, api.Query{Limit: limit})
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(page.w, map[string][]api.Hit{"hits": append([]api.Hit{}, hits...)})
	}
	if len(hits) == 0 {
		_, err := fmt.Fprintln(page.w, "nothing found")
		return err
	}
	rows := [][]cell{cells("RUN", "EVENT", "TEXT")}
	for _, hit := range hits {
		rows = append(rows, cells(shortID(hit.Run), fmt.Sprint(hit.Seq), plainLine(hit.Snippet, 250)))
	}
	return page.table(rows)
}
