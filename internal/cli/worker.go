package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor/internal/daemon"
)

type workerFlags struct {
	dir, home, tokenFile string
	verbose              bool
}

// workerKeys are the keys of the config that 'worker' has flags for, in the order
// of its help.
var workerKeys = []string{"broker.url", "broker.credentials", "slots", "labels"}

func newWorker() *cobra.Command {
	var opts workerFlags
	cmd := &cobra.Command{
		Use:   "worker --broker URL [flags]",
		Short: "Execute runs of a project on another machine",
		Long: `Execute runs of a project on another machine, until Ctrl-C.

'nestor serve' prints the command, if 'broker.listen' is set in the project's
config. The worker needs a folder that is like the project, a clone for one,
and takes the providers from the config there. Each run works in a copy of that
folder; the files that it changed come back with its result, and 'nestor runs
diff ID --apply' puts them into the project. Commits that it makes do not.

A run whose worker is lost begins anew on another one, as does what is going
when this command is ended. Who has the token can submit runs and read all of
them: give it, and the port, to nobody else.`,
		Example: "nestor worker --broker nats://10.0.0.5:7718 --token-file broker.token\nnestor worker --broker nats://10.0.0.5:7718 --token-file broker.token --slots 2 --labels gpu",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := workOptions(cmd, opts)
			if err != nil {
				return err
			}
			if err := work(cmd.Context(), o, cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("worker: %w", err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	for _, name := range workerKeys {
		k, _ := findKey(name)
		flags.String(workerFlag(k), "", k.doc)
	}
	flags.StringVar(&opts.tokenFile, "token-file", "", "the `FILE` with the token of a daemon's broker")
	flags.StringVar(&opts.dir, "dir", "", "the `FOLDER` that is like the project (default the current one)")
	flags.StringVar(&opts.home, "home", "", "the `FOLDER` for its own files and the copies (default .nestor/worker in the other)")
	flags.BoolVarP(&opts.verbose, "verbose", "v", false, "log more than warnings")
	return cmd
}

// workerFlag is the flag that sets a key here: --credentials, not
// --broker.credentials.
func workerFlag(k configKey) string {
	return strings.TrimPrefix(k.flagWord(), "broker.")
}

// workOptions reads the command line, and the config of the worker's folder.
func workOptions(cmd *cobra.Command, opts workerFlags) (daemon.WorkOptions, error) {
	fail := func(err error) (daemon.WorkOptions, error) {
		return daemon.WorkOptions{}, fmt.Errorf("worker: %w", err)
	}
	changed := map[string]string{}
	for _, name := range workerKeys {
		k, _ := findKey(name)
		if f := cmd.Flags().Lookup(workerFlag(k)); f.Changed {
			changed[name] = f.Value.String()
		}
	}
	dir, err := filepath.Abs(opts.dir)
	if err != nil {
		return fail(err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return daemon.WorkOptions{}, misuse(cmd, "--dir %s: there is no such folder", dir)
	}
	cfg, err := loadConfig(dir, os.Environ(), changed)
	if err != nil {
		return fail(err)
	}
	if cfg.Broker.URL == "" {
		return daemon.WorkOptions{}, misuse(cmd, "no --broker: it is in the command that 'nestor serve' prints, such as nats://10.0.0.5:7718")
	}
	o := daemon.WorkOptions{Dir: dir, URL: cfg.Broker.URL, Credentials: cfg.Broker.Credentials, Log: newLog(cmd.ErrOrStderr(), opts.verbose)}
	if opts.home != "" {
		if o.Home, err = filepath.Abs(opts.home); err != nil {
			return fail(err)
		}
	}
	if opts.tokenFile != "" {
		if o.Token, err = readTokenFile(opts.tokenFile); err != nil {
			return fail(err)
		}
	}
	if o.Worker, err = workerOptions(cfg); err != nil {
		return fail(err)
	}
	o.Agents = projectAgents(dir)
	return o, nil
}

// maxToken is how long a token may be.
const maxToken = 4 << 10

func readTokenFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || len(data) > maxToken || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("--token-file %s: want one token and nothing else, as in .nestor/broker.token of the project", name)
	}
	return token, nil
}

// work blocks until ctx ends, and returns nil then.
func work(ctx context.Context, o daemon.WorkOptions, stdout io.Writer) error {
	o.Ready = func() {
		text := fmt.Sprintf("nestor works on runs from %v in copies of %s", addressSetting{p: &o.URL}.get(), o.Dir)
		if len(o.Worker.Labels) > 0 {
			text += ", also those with label " + strings.Join(o.Worker.Labels, ", ")
		}
		fmt.Fprintln(stdout, text)
	}
	return daemon.Work(ctx, o)
}
