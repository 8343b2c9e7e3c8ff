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
				return runsSend(ctx, client, cmd.OutOrStdout(), id, args[1])
			})
		},
	}
}

func runsSend(ctx context.Context, client *api.Client, w io.Writer, id nestor.ID, text string) error {
	m := api.Message{From: commandLine, Content: text, ID: string(nestor.NewID(time.Now()))}
	if err := client.Send(ctx, id, m); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "run %s is told\n", id)
	return err
}
