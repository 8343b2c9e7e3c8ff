package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor/api"
)

func newHistory() *cobra.Command {
	group := newGroup("history", "Look after the archive of finished runs", newHistoryBackup())
	group.Example = "nestor history backup /backup/nestor-history.db"
	return group
}

func newHistoryBackup() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the archive to a file, also while it is used",
		Long: `Copy the archive of finished runs to a file, also while it is used.

The copy is whole and checked. It is put in place of .nestor/history.db to go
back to it. FILE must not exist.`,
		Example: "nestor history backup /backup/nestor-history.db",
		Args:    runArgs("a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := filepath.Abs(args[0])
			if err != nil {
				return fmt.Errorf("history backup: %w", err)
			}
			return withRuns(cmd, func(ctx context.Context, client *api.Client) error {
				if err := client.Backup(ctx, path); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", path)
				return err
			})
		},
	}
}
