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

func newWorkspaces() *cobra.Command {
	cmd := newGroup("workspaces", "See and end the folders that runs have left",
		newWorkspacesList(),
		newWorkspacesDiff(),
		newWorkspacesApprove(),
		newWorkspacesEnd("merge", "Merge the work of a run into the branch that it came from", `Merge the work of a run into the branch that it came from, and remove its folder
and its branch. If it cannot be merged, all stays as it is, and it is said why.`),
		newWorkspacesEnd("drop", "Remove the folder and the branch of a run, with all that is on them", ""),
		newWorkspacesCollect(),
	)
	cmd.Example = "nestor workspaces list\nnestor workspaces merge 5a1c2b3d"
	return cmd
}

func newWorkspacesList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the folders of runs, the oldest first",
		Example: "nestor workspaces list\nnestor workspaces list --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withRuns(cmd, func(ctx context.Context, client *api.Client) error {
				list, err := client.Workspaces(ctx)
				if err != nil {
					return err
				}
				return printSpaces(newRunsPage(cmd.OutOrStdout()), list, asJSON, "no workspaces")
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func printSpaces(page runsPage, list []api.Space, asJSON bool, none string) error {
	if asJSON {
		return printJSON(page.w, map[string][]api.Space{"workspaces": append([]api.Space{}, list...)})
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(page.w, none)
		return err
	}
	rows := [][]cell{cells("RUN", "KIND", "STATE", "SIZE", "USED", "WHERE", "HOLDS")}
	for _, s := range list {
		where := s.Branch
		if where == "" {
			where = s.Dir
		}
		rows = append(rows, cells(shortID(s.Run), s.Kind, stateOf(s), bytesOf(s.Size), page.time(s.Used), plainLine(where, 100), orDash(plainLine(s.Work, 60))))
	}
	return page.table(rows)
}

func stateOf(s api.Space) string {
	switch {
	case s.InUse:
		return "in use"
	case s.Approved != "":
		return "approved"
	case s.Closed:
		return "kept"
	}
	return "interrupted"
}

// bytesOf is a number of bytes, roughly.
func bytesOf(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	size, at := float64(n)/unit, 0
	for size >= unit && at < len(sizeUnits)-1 {
		size, at = size/unit, at+1
	}
	return fmt.Sprintf("%.1f %ciB", size, sizeUnits[at])
}

func newWorkspacesCollect() *cobra.Command {
	var c api.Collection
	var asJSON bool
	var age, size string
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Remove the folders of runs that are old, or too large together",
		Long: `Remove the folders of runs that are old, or too large together, as the config says
under 'workspace.collect'. Folders with work that is not merged, or not committed,
stay, unless --force is given: then it is lost. Those in use stay in any case.`,
		Example: "nestor workspaces collect\nnestor workspaces collect --age 24h\nnestor workspaces collect --size 1G --force",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if age != "" {
				d, err := time.ParseDuration(age)
				if err != nil || d <= 0 {
					return misuse(cmd, "--age %.60q: want a duration, such as 24h", age)
				}
				c.Age = d
			}
			if size != "" {
				n, err := parseSize(size)
				if err != nil || n <= 0 {
					return misuse(cmd, "--size %.60q: want a size, such as 512M or 10G", size)
				}
				c.Size = n
			}
			return withRuns(cmd, func(ctx context.Context, client *api.Client) error {
				gone, err := client.CollectWorkspaces(ctx, c)
				if err != nil {
					return err
				}
				return printSpaces(newRunsPage(cmd.OutOrStdout()), gone, asJSON, "nothing is collected")
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&age, "age", "", "those that were used last so long ago, a `DURATION` such as 24h (default as the config says)")
	flags.StringVar(&size, "size", "", "the oldest, until the rest has no more than `SIZE` (default as the config says)")
	flags.BoolVar(&c.Force, "force", false, "also work that is not merged, which is lost then")
	flags.BoolVar(&asJSON, "json", false, "print what is gone as one JSON document")
	return cmd
}

func newWorkspacesEnd(end, short, long string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     end + " RUN",
		Short:   short,
		Long:    long,
		Example: "nestor workspaces " + end + " 5a1c2b3d",
		Args:    runArgs("a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withSpace(cmd, args[0], func(ctx context.Context, client *api.Client, id nestor.ID) error {
				w, err := client.EndWorkspace(ctx, id, api.Ending{End: end})
				if err != nil {
					return err
				}
				return printOutcome(cmd.OutOrStdout(), id, w, asJSON, end)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func newWorkspacesApprove() *cobra.Command {
	var a api.Approval
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "approve RUN",
		Short: "Say that the work of a run is good",
		Long: `Say that the work of a run is good. If the run was to be merged and waited for
this ('workspace.approve' in the config), it is merged.`,
		Example: "nestor workspaces approve 5a1c2b3d\nnestor workspaces approve 5a1c2b3d --by ada --reason 'tests pass'",
		Args:    runArgs("a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withSpace(cmd, args[0], func(ctx context.Context, client *api.Client, id nestor.ID) error {
				w, err := client.ApproveWorkspace(ctx, id, a)
				if err != nil {
					return err
				}
				if !asJSON && w.End == "keep" && w.Why == "" {
					_, err := fmt.Fprintf(cmd.OutOrStdout(), "run %s is approved; 'nestor workspaces merge %s' merges it\n", id, id)
					return err
				}
				return printOutcome(cmd.OutOrStdout(), id, w, asJSON, "merge")
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&a.By, "by", "", "who says so, a `NAME` (default person)")
	flags.StringVar(&a.Reason, "reason", "", "say why; `TEXT` is kept with it")
	flags.BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func newWorkspacesDiff() *cobra.Command {
	var opts diffOptions
	cmd := &cobra.Command{
		Use:     "diff RUN",
		Short:   "Show what a run changed in its folder",
		Example: "nestor workspaces diff 5a1c2b3d",
		Args:    runArgs("a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withRun(cmd, args[0], func(ctx context.Context, client *api.Client, id nestor.ID) error {
				d, err := client.Diff(ctx, id)
				if err != nil {
					return err
				}
				return printDiff(cmd.OutOrStdout(), d, opts)
			})
		},
	}
	opts.flags(cmd)
	return cmd
}

// withSpace is withRun for a run that has left a folder: also one that is
// forgotten otherwise.
func withSpace(cmd *cobra.Command, text string, f func(context.Context, *api.Client, nestor.ID) error) error {
	if !mayBeID(text) {
		return noID(cmd, text)
	}
	return withRuns(cmd, func(ctx context.Context, client *api.Client) error {
		list, err := client.Workspaces(ctx)
		if err != nil {
			return err
		}
		var found []nestor.ID
		for _, s := range list {
			if id := string(s.Run); strings.HasPrefix(id, text) || strings.HasSuffix(id, text) {
				found = append(found, s.Run)
			}
		}
		if len(found) == 1 {
			return f(ctx, client, found[0])
		}
		id, err := resolveRun(ctx, client, text)
		if err != nil {
			return err
		}
		return f(ctx, client, id)
	})
}

// printOutcome says what became of a run's folder. If that is not what was wanted,
// the error says why.
func printOutcome(w io.Writer, id nestor.ID, out api.Workspace, asJSON bool, wanted string) error {
	var err error
	if asJSON {
		err = printJSON(w, out)
	} else {
		switch out.End {
		case "merge":
			_, err = fmt.Fprintf(w, "run %s is merged into %s, which is %.12s now\n", id, plainLine(out.Into, 200), out.Merged)
		case "drop":
			_, err = fmt.Fprintf(w, "run %s is dropped\n", id)
		}
	}
	if err == nil && out.End != wanted {
		err = fmt.Errorf("run %s is not ended with %s: %s", id, wanted, plainLine(out.Why, 500))
		for i, path := range out.Conflicts {
			if i == 20 {
				return fmt.Errorf("%w\n  and %d more", err, len(out.Conflicts)-i)
			}
			err = fmt.Errorf("%w\n  conflict %s", err, plainLine(path, 300))
		}
	}
	return err
}

// spaceLine says in a line what became of a run's folder.
func spaceLine(w api.Workspace) string {
	line := plainLine(w.Kind, 20) + ", " + filesOf(w.Changed) + " changed"
	switch {
	case w.End == "merge":
		line += ", merged into " + plainLine(w.Into, 200)
	case w.End == "drop":
		line += ", dropped"
	case w.Branch != "":
		line += ", kept on " + plainLine(w.Branch, 200)
	default:
		line += " in " + plainLine(w.Dir, 300)
	}
	if w.Why != "" {
		line += ": " + plainLine(w.Why, 300)
	}
	return line
}
