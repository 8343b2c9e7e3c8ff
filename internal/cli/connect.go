package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/dfaf701a/nestor/agent/scripted"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/daemon"
	"github.com/dfaf701a/nestor/internal/sandbox"
	"github.com/dfaf701a/nestor/internal/workspace"
)

// connectFor is how long a project may be owned by somebody who does not answer:
// one that is starting, or ending.
const connectFor = 20 * time.Second

// dialer reaches a project's daemon.
type dialer func(context.Context) (*link, error)

// newDialer returns the dialer of the project that dir belongs to. It reaches the
// daemon that runs, or becomes one, which executes runs only if it works.
//
// Inside of an agent it is the way that the agent's run has.
func newDialer(dir string, works bool) (dialer, error) {
	if client := agentClient(os.Getenv); client != nil {
		return func(context.Context) (*link, error) {
			return &link{client: client, close: func() error { client.Close(); return nil }}, nil
		}, nil
	}
	project, err := projectDir(dir)
	if err != nil {
		return nil, err
	}
	cfg, err := loadConfig(project, os.Environ(), nil)
	if err != nil {
		return nil, err
	}
	o, err := daemonOptions(project, cfg)
	if err != nil {
		return nil, err
	}
	o.Idle, o.Lone = !works, true
	if !works && !hasNestor(project) && o.Broker.URL == "" {
		return func(ctx context.Context) (*link, error) { return dialNothing(ctx, o) }, nil
	}
	return func(ctx context.Context) (*link, error) { return dial(ctx, o) }, nil
}

// dialNothing reaches a project in which nothing was ever run, for who only looks: it
// answers as an empty one does, and is gone when the link is closed. A folder .nestor
// that somebody has left by looking would be the project of all folders below it.
func dialNothing(ctx context.Context, o daemon.Options) (*link, error) {
	var err error
	if o.Dir, err = os.MkdirTemp("", "nestor-"); err != nil {
		return nil, err
	}
	l, err := dial(ctx, o)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(o.Dir))
	}
	end := l.close
	l.close = func() error { return errors.Join(end(), os.RemoveAll(o.Dir)) }
	return l, nil
}

// link is a way to a project's daemon.
type link struct {
	client *api.Client
	close  func() error
	own    bool // the daemon is in this process
}

// dial reaches the daemon of a project, or becomes it. A daemon that only answers
// one command is no use to somebody who wants work done.
func dial(ctx context.Context, o daemon.Options) (*link, error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // it starts sooner, and a command's memory is not needed for long
	}
	ctx, stop := context.WithTimeoutCause(ctx, connectFor, errSilent)
	defer stop()
	l, err := reach(ctx, o)
	if errors.Is(err, errSilent) {
		err = fmt.Errorf("the owner of %s%s does not answer: wait for it, or see what it does", o.Dir, ownerOf(o.Dir))
	}
	return l, err
}

var errSilent = errors.New("the owner of the project does not answer")

// ownerOf says which process owns a project, as a part of a sentence.
func ownerOf(project string) string {
	if pid := daemon.Owner(project); pid != 0 {
		return fmt.Sprintf(", process %d,", pid)
	}
	return ""
}

// reach is dial, for as long as ctx lasts.
func reach(ctx context.Context, o daemon.Options) (*link, error) {
	for {
		client := api.NewClient(daemon.SocketPath(o.Dir))
		info, err := client.Info(ctx)
		if err == nil && (o.Idle || !info.Idle || !info.Lone) {
			return &link{client: client, close: func() error { client.Close(); return nil }}, nil
		}
		client.Close()
		if err != nil && !errors.Is(err, api.ErrNoDaemon) && !errors.Is(err, api.ErrDisconnected) {
			return nil, err
		}
		if err != nil {
			l, err := become(ctx, o)
			if !errors.Is(err, daemon.ErrOwned) {
				return l, err
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// become makes this process the project's daemon.
func become(ctx context.Context, o daemon.Options) (*link, error) {
	if !o.Idle || hasNestor(o.Dir) {
		if err := claim(o.Dir, os.Environ()); err != nil {
			return nil, err
		}
	}
	d := daemon.New(o)
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- d.Run(running) }()
	select {
	case err := <-done:
		end()
		return nil, err
	case <-ctx.Done():
		end()
		<-done
		return nil, context.Cause(ctx)
	case <-d.Ready():
	}
	client := api.NewClient(daemon.SocketPath(o.Dir))
	return &link{client: client, own: true, close: func() error {
		client.Close()
		end()
		return <-done
	}}, nil
}

// daemonOptions says how the daemon of a project is built.
func daemonOptions(project string, cfg *config) (daemon.Options, error) {
	build, _ := debug.ReadBuildInfo()
	o := daemon.Options{
		Dir: project, Version: versionOf(build).Version, Limits: cfg.Limits, ArchiveAfter: cfg.ArchiveAfter,
		Broker: daemon.Broker{URL: cfg.Broker.URL, Credentials: cfg.Broker.Credentials, Listen: cfg.Broker.Listen},
	}
	o.Agents = projectAgents(project)
	var err error
	o.Worker, err = workerOptions(cfg)
	return o, err
}

// projectAgents says which agents there are besides those of a project, and which of
// these are trusted.
func projectAgents(project string) daemon.Agents {
	return daemon.Agents{User: userAgents(variables(os.Environ())), Trusts: trustsAgents(project, os.Environ())}
}

// workerOptions says how runs are executed.
func workerOptions(cfg *config) (daemon.Worker, error) {
	w := daemon.Worker{
		Provider: cfg.Provider, Slots: cfg.Slots, Labels: cfg.Label, Tools: cfg.Tools, Mode: cfg.PermissionMode, Role: cfg.Role, Roles: cfg.Roles, Pass: cfg.Pass, Sandbox: cfg.Sandbox, Hosts: cfg.Hosts, Settings: cfg.SDK.Settings,
		Models: cfg.Models, Delegation: cfg.Delegation, MaxResult: cfg.MaxResult,
	}
	w.Limits = sandbox.Limits{Memory: cfg.Resources.Memory, Processes: cfg.Resources.Processes, CPU: cfg.Resources.CPU, Processors: cfg.Resources.Processors}
	w.Workspace = daemon.Workspaces{
		Kind: cfg.Workspace.Kind, Base: cfg.Workspace.Base, Setup: cfg.Workspace.Setup, Copy: cfg.Workspace.Copy, Ports: cfg.Workspace.Ports,
		End: cfg.Workspace.End, Approve: cfg.Workspace.Approve, Collect: workspace.Policy{Age: cfg.Workspace.Age, Size: cfg.Workspace.Size},
	}
	w.SDK.Path, w.Warm = cfg.SDK.Path, cfg.SDK.Warm
	for name, value := range cfg.SDK.Env {
		w.SDK.Env = append(w.SDK.Env, name+"="+value)
	}
	w.API.BaseURL, w.API.APIKey = cfg.API.BaseURL, cfg.API.APIKey
	if cfg.API.APIKeyFile != "" {
		key, err := os.ReadFile(cfg.API.APIKeyFile)
		if err != nil {
			return w, fmt.Errorf("reading the API key: %w", err)
		}
		w.API.APIKey = strings.TrimSpace(string(key))
	}
	if cfg.Script != "" {
		var err error
		if w.Script, err = scripted.Load(cfg.Script); err != nil {
			return w, err
		}
	}
	return w, nil
}
