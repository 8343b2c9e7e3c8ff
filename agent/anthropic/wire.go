package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/dfaf701a/nestor/agent/anthropic/tools"
)

// kit is what a session does things with.
type kit struct {
	tools   []tools.Tool
	servers []serverStatus
	recall  func(name string, input json.RawMessage) // a call that went well in an earlier life
	bound   func(id, text string) (string, error)    // a result that is short enough for the model
	close   func() error                             // ends what calls left running
}

// serverStatus is how an MCP server is, as the CLI says it.
type serverStatus struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// open makes the kit of a session. Tools may talk to the hosts that
// s.mayReach allows, and keep long results in a folder of the session's own.
func (p *Provider) open(ctx context.Context, s *session) (*kit, error) {
	spool := ""
	if p.opts.Spool != "" {
		spool = filepath.Join(p.opts.Spool, s.id)
	}
	env := slices.Concat(s.set.Env, s.set.Own)
	set, err := tools.New(tools.Options{Dir: s.dir, Files: s.set.Files, Dirs: s.set.Dirs, ReadDirs: s.set.ReadDirs, Env: env, BaseEnv: s.set.BaseEnv, Command: p.opts.Command, Wrap: s.set.Wrap, Spool: spool, AllowHost: s.mayReach, Dial: s.set.Dial})
	if err != nil {
		return nil, err
	}
	servers := tools.NewServers(s.set.MCPServers, tools.ServersOptions{Dir: s.dir, Env: env, BaseEnv: s.set.BaseEnv, Command: p.opts.Command, Wrap: s.set.Wrap, Dial: s.set.Dial})
	k := &kit{
		tools: set.Tools(), recall: set.Recall, bound: set.Bound,
		close: func() error { return errors.Join(servers.Close(), set.Close()) },
	}
	theirs, statuses := servers.Tools(ctx)
	k.tools = append(k.tools, theirs...)
	for _, st := range statuses {
		k.servers = append(k.servers, serverStatus{st.Name, st.Status})
	}
	if p.opts.Tools != nil {
		k.tools = append(k.tools, p.opts.Tools(s.set.Config)...)
	}
	return k, nil
}

const maxResult = 100_000

// cut shortens a result that has nowhere else to go.
func cut(text string) string {
	if len(text) <= maxResult {
		return text
	}
	end := maxResult
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s\n[cut here: the result has %d bytes]", text[:end], len(text))
}
