package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor/internal/daemon"
)

func newServe() *cobra.Command {
	var dir string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Own a project and run what others submit",
		Long: `Own a project and run what others submit, until Ctrl-C.

All commands of the project become its clients, on a Unix socket that it prints
when it is ready. Runs that are going when it ends go on when it, or another
command, is started again.

With 'broker.listen' in the config, workers on other machines can help: it
prints the command for them.`,
		Example: "nestor serve\nnestor serve --dir ~/src/project",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := serve(cmd.Context(), dir, verbose, cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
				return fmt.Errorf("serve: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the project's `FOLDER` (default the one that the current one belongs to)")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log more than warnings")
	return cmd
}

// serve blocks until ctx ends, and returns nil then.
func serve(ctx context.Context, dir string, verbose bool, stdout, stderr io.Writer) error {
	project, err := projectDir(dir)
	if err != nil {
		return err
	}
	cfg, err := loadConfig(project, os.Environ(), nil)
	if err != nil {
		return err
	}
	o, err := daemonOptions(project, cfg)
	if err != nil {
		return err
	}
	o.Log = newLog(stderr, verbose)
	d := daemon.New(o)
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-d.Ready():
	}
	fmt.Fprintf(stdout, "nestor serves %s on %s\n", project, daemon.SocketPath(project))
	if addr := d.BrokerAddr(); addr != "" {
		fmt.Fprintf(stdout, "workers: nestor worker --broker nats://%s --token-file %s\n", addr, shellQuote(daemon.TokenFile(project)))
	}
	return <-done
}

// newLog returns the log of a process that lives long.
func newLog(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}
