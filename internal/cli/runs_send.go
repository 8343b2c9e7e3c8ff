package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

func newRunsSend() *cobra.Command {
	return &cobra.Command{
		Use:     "send ID TEXT",
		Short:   "Tell a run something",
		Example: "nestor runs send 5a1c2b3d 'leave the tests alone'",
		Args:    runArgs("a run", "a text"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] == "" {
				return misuse(cmd, "the text is empty")
			}
			return withRun(cmd, args[0], func(ctx context.Context, client *api.Client, id nestor.ID) error {
				m := api.Message{From: commandLine, Content: args[1], ID: string(nestor.NewID(time.Now()))}
				if err := client.Send(ctx, id, m); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "run %s is told\n", id)
				return err
			})
		},
	}
}
