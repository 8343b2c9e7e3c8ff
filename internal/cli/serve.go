package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/daemon"
)

func newServe() *cobra.Command {
	var dir string
	var verbose, idle bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Own a project and run what others submit",
		Long: `Own a project and run what others submit, until Ctrl-C.

All commands of the project become its clients, on a Unix socket that it prints
when it is ready. Runs that are going when it ends go on when it, or another
command, is started again.

With 'broker.listen' in the config, workers on other machines can help: it
prints the command for them. With --idle they do all of the work.

While a single command owns the project, such as 'nestor run', it waits for that
to end. A project that is served already is not served twice.`,
		Example: "nestor serve\nnestor serve --dir ~/src/project",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := serve(cmd.Context(), dir, idle, verbose, cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
				return fmt.Errorf("serve: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the project's `FOLDER` (default the one that the current one belongs to)")
	cmd.Flags().BoolVar(&idle, "idle", false, "answer and plan, and leave the work to workers")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log more than warnings")
	return cmd
}

// serve blocks until ctx ends, and returns nil then.
func serve(ctx context.Context, dir string, idle, verbose bool, stdout, stderr io.Writer) error {
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
	if idle && o.Broker.Listen == "" && o.Broker.URL == "" {
		return errors.New("--idle: no worker could reach the broker, so nothing would ever be done: set broker.listen in the config, such as 127.0.0.1:7718")
	}
	o.Idle, o.Log = idle, newLog(stderr, verbose)
	if err := claim(project, os.Environ()); err != nil {
		return err
	}
	return patiently(ctx, project, stderr, func() error { return serveAs(ctx, o, stdout) })
}

// serveAs serves as o says, unless somebody else owns the project.
func serveAs(ctx context.Context, o daemon.Options, stdout io.Writer) error {
	d := daemon.New(o)
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-d.Ready():
	}
	fmt.Fprintf(stdout, "nestor serves %s on %s\n", o.Dir, daemon.SocketPath(o.Dir))
	if addr := d.BrokerAddr(); addr != "" {
		fmt.Fprintf(stdout, "workers: nestor worker --broker nats://%s --token-file %s\n", addr, shellQuote(daemon.TokenFile(o.Dir)))
	}
	return <-done
}

// patiently calls do again for as long as the project is owned by a command that ends by
// itself. It says so if that takes its time. Who does not answer may be starting or
// ending, and is waited for as long as by [dial].
func patiently(ctx context.Context, project string, stderr io.Writer, do func() error) error {
	client := api.NewClient(daemon.SocketPath(project))
	defer client.Close()
	began := time.Now()
	tell := sync.OnceFunc(func() {
		fmt.Fprintln(stderr, "nestor: serve: another command owns the project: waiting for its end")
	})
	for heard := began; ; {
		err := do()
		if !errors.Is(err, daemon.ErrOwned) {
			return err
		}
		info, failed := client.Info(ctx)
		switch {
		case failed == nil && !info.Lone, time.Since(heard) > connectFor:
			return err
		case failed == nil:
			heard = time.Now()
		}
		if time.Since(began) > time.Second {
			tell()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
}

// newLog returns the log of a process that lives long.
func newLog(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}
