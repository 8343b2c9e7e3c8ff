package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/daemon"
	"github.com/dfaf701a/nestor/internal/spawn"
)

func newMCP() *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Be an MCP server with which agents start others",
		Long: `Be an MCP server on stdin and stdout, with the tools spawn, wait, send, inbox,
progress and ask_person: those that agents of Nestor have.

Inside of an agent it acts for that agent's run. Elsewhere, for any MCP client, it
starts runs of the project that the current folder belongs to; if no daemon
serves the project, it does so itself until its input ends.`,
		Example: "claude mcp add nestor -- nestor mcp",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := serveMCP(cmd); err != nil {
				return fmt.Errorf("mcp: %w", err)
			}
			return nil
		},
	}
}

func serveMCP(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if client := agentClient(os.Getenv); client != nil {
		defer client.Close()
		return speakMCP(ctx, cmd, client)
	}
	task, d, err := defaultTask()
	if err != nil {
		return err
	}
	d.Lone = true
	l, err := dial(ctx, d)
	if err != nil {
		return err
	}
	return errors.Join(speakMCP(ctx, cmd, &outsider{client: l.client, task: task}), l.close())
}

// speakMCP serves one client until its input ends.
func speakMCP(ctx context.Context, cmd *cobra.Command, v spawn.Verbs) error {
	in, ok := cmd.InOrStdin().(io.ReadCloser)
	if !ok {
		in = io.NopCloser(cmd.InOrStdin())
	}
	err := spawn.Server(v, true).InProcess(spawn.ServerName).Run(ctx, &mcp.IOTransport{Reader: in, Writer: nopCloser{cmd.OutOrStdout()}})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// defaultTask returns a task as the config of the current project has it.
func defaultTask() (nestor.Task, daemon.Options, error) {
	project, err := projectDir("")
	if err != nil {
		return nestor.Task{}, daemon.Options{}, err
	}
	cfg, err := loadConfig(project, os.Environ(), nil)
	if err != nil {
		return nestor.Task{}, daemon.Options{}, err
	}
	d, err := daemonOptions(project, cfg)
	if err != nil {
		return nestor.Task{}, d, err
	}
	task, err := taskOf("", cfg, runOptions{}, nil)
	return task, d, err
}

// outsider is an MCP client that is no run: what it starts are roots.
type outsider struct {
	client *api.Client
	task   nestor.Task // that stands for its own, as the config has it
}

var errNoRun = errors.New("this is for agents that Nestor runs: nobody is above this one, and nobody can write to it")

func (o *outsider) Spawn(ctx context.Context, s api.Spawn) (api.Child, error) {
	if strings.TrimSpace(s.Task) == "" {
		return api.Child{}, errors.New("task: empty; say what the agent is to do")
	}
	t, err := spawn.Narrow(o.task, api.TaskOptions{}, s)
	if err != nil {
		return api.Child{}, err
	}
	t.Limits = s.Limits.Or(o.task.Limits)
	options, err := api.ParseTaskOptions(t.Data)
	if err != nil {
		return api.Child{}, err
	}
	options.Above = nil // nobody is
	if err := setOptions(&t, options); err != nil {
		return api.Child{}, err
	}
	run, err := o.client.Submit(ctx, api.Submission{Task: t, Key: s.Key})
	if err == nil && !s.Background {
		run, err = o.client.Wait(ctx, run.ID)
	}
	return childOf(run), err
}

func (o *outsider) Await(ctx context.Context, w api.WaitFor) (list []api.Child, err error) {
	if len(w.Runs) == 0 {
		return nil, errors.New("runs: empty; name those that are waited for")
	}
	if w.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, w.Timeout, errors.New("they have not ended in that time"))
		defer stop()
	}
	for _, text := range w.Runs {
		id, err := nestor.ParseID(text)
		if err != nil {
			return nil, err
		}
		run, err := o.client.Wait(ctx, id)
		if err != nil {
			return nil, err
		}
		list = append(list, childOf(run))
		if w.Any {
			break
		}
	}
	return list, nil
}

func (o *outsider) Write(ctx context.Context, l api.Letter) ([]nestor.ID, error) {
	id, err := nestor.ParseID(l.To)
	if err != nil {
		return nil, fmt.Errorf("to: %w", err)
	}
	return []nestor.ID{id}, o.client.Send(ctx, id, api.Message{From: "an MCP client", Content: l.Content})
}

func (o *outsider) Inbox(context.Context) ([]api.Letter, error) { return nil, errNoRun }
func (o *outsider) Report(context.Context, api.Progress) error  { return errNoRun }
func (o *outsider) Ask(context.Context, api.Question) (api.Reply, error) {
	return api.Reply{}, errNoRun
}
