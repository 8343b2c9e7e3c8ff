package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

func newRuns() *cobra.Command {
	cmd := newGroup("runs", "See and steer runs",
		newRunsList(),
		newRunsShow(),
		newRunsTree(),
		newRunsEvents(),
		newRunsDiff(),
		newRunsCancel(),
		newRunsSend(),
		newRunsSearch(),
	)
	cmd.Example = "nestor runs list\nnestor runs events 5a1c2b3d --follow"
	return cmd
}

// withRuns lets f ask the project's daemon. What fails is said of cmd.
func withRuns(cmd *cobra.Command, f func(context.Context, *api.Client) error) error {
	return withDialer(cmd, false, func(ctx context.Context, dial dialer) error {
		l, err := dial(ctx)
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, l.client), l.close())
	})
}

// withDialer lets f reach the project's daemon, see newDialer. What fails is said
// of cmd.
func withDialer(cmd *cobra.Command, works bool, f func(context.Context, dialer) error) error {
	dial, err := newDialer(".", works)
	if err == nil {
		err = f(cmd.Context(), dial)
	}
	if err != nil {
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// withRun is withRuns for one run, whose id may be abbreviated.
func withRun(cmd *cobra.Command, text string, f func(context.Context, *api.Client, nestor.ID) error) error {
	if !mayBeID(text) {
		return noID(cmd, text)
	}
	return withRuns(cmd, func(ctx context.Context, client *api.Client) error {
		id, err := resolveRun(ctx, client, text)
		if err != nil {
			return err
		}
		return f(ctx, client, id)
	})
}

// noID says that text is not what mayBeID takes.
func noID(cmd *cobra.Command, text string) error {
	return misuse(cmd, "%.60q is no run id; want one, its beginning or its end, as 'nestor runs list' prints it", text)
}

// runArgs is the Args of commands that take a run and so many more arguments.
func runArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return misuse(cmd, "takes %s, got %d arguments", strings.Join(names, " and "), len(args))
		}
		return nil
	}
}

func mayBeID(text string) bool {
	return text != "" && len(text) <= 36 && strings.Trim(text, "0123456789abcdef-") == ""
}

// What resolving looks through at most, and how much of it at once.
const (
	resolvePage = 1000
	resolveMost = 100
)

// resolveRun finds the run that text is the id of, or the only one whose id
// begins or ends with it.
func resolveRun(ctx context.Context, client *api.Client, text string) (nestor.ID, error) {
	if id, err := nestor.ParseID(text); err == nil {
		return id, nil
	}
	var found []nestor.ID
	q := api.Query{Limit: resolvePage}
	for range resolveMost {
		runs, err := client.Runs(ctx, q)
		if err != nil {
			return "", err
		}
		for _, run := range runs {
			if id := string(run.ID); strings.HasPrefix(id, text) || strings.HasSuffix(id, text) {
				found = append(found, run.ID)
			}
		}
		if len(runs) == 0 || runs[len(runs)-1].Cursor == q.After {
			break
		}
		q.After = runs[len(runs)-1].Cursor
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%w: no id begins or ends with %q; 'nestor runs list --all' prints them", nestor.ErrRunNotFound, text)
	case 1:
		return found[0], nil
	}
	const shown = 5
	var b strings.Builder
	for _, id := range found[:min(shown, len(found))] {
		fmt.Fprintf(&b, "\n  %s", id)
	}
	if len(found) > shown {
		fmt.Fprintf(&b, "\n  and %d more", len(found)-shown)
	}
	return "", fmt.Errorf("%q is the beginning or end of %d ids; give more of one:%s", text, len(found), &b)
}
