package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// commandLine is who the daemon is told that asks.
const commandLine = "the command line"

func newRunsCancel() *cobra.Command {
	c := api.Cancellation{By: commandLine}
	cmd := &cobra.Command{
		Use:     "cancel ID",
		Short:   "End a run and all below it",
		Example: "nestor runs cancel 5a1c2b3d\nnestor runs cancel 5a1c2b3d --now --reason 'wrong branch'",
		Args:    runArgs("a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withRun(cmd, args[0], func(ctx context.Context, client *api.Client, id nestor.ID) error {
				return runsCancel(ctx, client, cmd.OutOrStdout(), id, c)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&c.Now, "now", false, "do not let it finish what it does")
	flags.StringVar(&c.Reason, "reason", "", "say why; `TEXT` is in its events")
	return cmd
}

// endFor is how long a run that nobody works on, and all below it, may take to end.
const endFor = 5 * time.Second

func runsCancel(ctx context.Context, client *api.Client, w io.Writer, id nestor.ID, c api.Cancellation) error {
	if err := client.Cancel(ctx, id, c); err != nil {
		return err
	}
	said := "is told to end"
	if info, err := client.Info(ctx); err == nil && info.Lone && info.Idle && info.Broker == "embedded" {
		// Nobody works on it: it ends here, if it is let.
		ctx, stop := context.WithTimeout(ctx, endFor)
		defer stop()
		if _, err := client.Wait(ctx, id); err == nil {
			said = "has ended: nobody worked on it"
		}
	}
	_, err := fmt.Fprintf(w, "run %s %s\n", id, said)
	return err
}
