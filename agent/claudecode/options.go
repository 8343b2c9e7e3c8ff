package claudecode

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// The keys of Config.Credentials that this provider reads.
const (
	modeKey    = "mode"    // "query", the default, or "client"
	partialKey = "partial" // "true": text also as it is written; the default is "false"
)

// The modes of an agent.
const (
	modeQuery  = "query"
	modeClient = "client"
)

// keys are what the CLI does not inherit from the host, so that it uses its own
// login.
var keys = []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"}

// optionsOf makes of c what package claude is told. Keys, tokens and base URLs
// in c.Credentials are left out: the CLI has its own login.
func (p *Provider) optionsOf(c agent.Config) (claude.Options, error) {
	servers, serverErr := serversOf(c.MCPServers)
	sources, sourceErr := sourcesOf(c.SettingSources)
	mode, modeErr := permissionModeOf(c.PermissionMode)
	partial, partialErr := partialOf(c.Credentials[partialKey])
	err := errors.Join(
		checkMode(c.Credentials[modeKey]), modeErr, sourceErr, serverErr, partialErr,
	)
	base := c.BaseEnv
	if p.opts.ReplaceEnv {
		base = []string{}
	}
	return claude.Options{
		Path:           p.opts.Path,
		Dir:            c.Dir,
		Env:            slices.Concat(base, p.opts.Env, c.Env),
		ReplaceEnv:     base != nil,
		Unset:          keys,
		Model:          c.Model,
		MaxTurns:       c.Limits.MaxTurns,
		MaxBudgetUSD:   c.Limits.MaxBudgetUSD,
		SystemPrompt:   claude.SystemPrompt{Text: c.Instructions},
		Schema:         c.Schema,
		Tools:          toolsOf(c.AllowedTools),
		AutoApprove:    slices.Concat(c.AllowedTools, c.Approved),
		RemoveTools:    c.DeniedTools,
		PermissionMode: mode,
		AllowBypass:    mode == claude.ModeBypass,
		CanUseTool:     c.CanUseTool,
		Hooks:          c.Hooks,
		MCPServers:     servers,
		// Who reads no settings gets none of the servers that are set up there.
		StrictMCP:           len(sources) == 0,
		SettingSources:      sources,
		PartialMessages:     partial,
		OnFrame:             c.OnFrame,
		Wrap:                c.Wrap,
		ForwardSubagentText: true,
		Log:                 p.opts.Log,
	}, err
}

func checkMode(mode string) error {
	switch mode {
	case "", modeQuery, modeClient:
		return nil
	}
	return fmt.Errorf("there is no mode %q; there are: %s, %s", mode, modeQuery, modeClient)
}

var permissionModes = []claude.PermissionMode{
	claude.ModeDefault, claude.ModeAcceptEdits, claude.ModeBypass, claude.ModePlan, claude.ModeDontAsk, claude.ModeAuto,
}

func permissionModeOf(name string) (claude.PermissionMode, error) {
	mode := claude.PermissionMode(name)
	if name == "" {
		mode = claude.ModeAcceptEdits
	}
	if !slices.Contains(permissionModes, mode) {
		return "", fmt.Errorf("there is no permission mode %q; there are: %s", name, list(permissionModes))
	}
	return mode, nil
}

var settingSources = []claude.SettingSource{claude.SourceUser, claude.SourceProject, claude.SourceLocal}

// sourcesOf never returns nil, which would mean all.
func sourcesOf(names []string) ([]claude.SettingSource, error) {
	sources := []claude.SettingSource{}
	for _, name := range names {
		source := claude.SettingSource(name)
		if !slices.Contains(settingSources, source) {
			return nil, fmt.Errorf("there is no setting source %q; there are: %s", name, list(settingSources))
		}
		sources = append(sources, source)
	}
	return sources, nil
}

// toolsOf returns the built-in tools that the allowed ones are, or are rules
// about: nil for nil, which means all.
func toolsOf(allowed []string) []string {
	if allowed == nil {
		return nil
	}
	tools := []string{}
	for _, rule := range allowed {
		name, _, _ := strings.Cut(rule, "(")
		if name = strings.TrimSpace(name); !strings.HasPrefix(name, "mcp__") && !slices.Contains(tools, name) {
			tools = append(tools, name)
		}
	}
	return tools
}

func serversOf(servers map[string]agent.MCPServer) (map[string]claude.MCPServer, error) {
	if servers == nil {
		return nil, nil
	}
	all := map[string]claude.MCPServer{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		s := servers[name]
		forms := 0
		if s.Command != "" {
			forms++
			all[name] = claude.StdioServer{Command: s.Command, Args: s.Args, Env: s.Env}
		}
		if s.URL != "" {
			forms++
			all[name] = claude.HTTPServer{URL: s.URL, Headers: s.Headers}
		}
		if s.Server != nil {
			forms++
		}
		if s.Tools != nil {
			forms++
		}
		if server := s.InProcess(name); server != nil {
			all[name] = &claude.InProcess{Server: server}
		}
		if forms != 1 {
			errs = append(errs, fmt.Errorf("MCP server %q has %d of Command, URL, Server and Tools: set one", name, forms))
		}
	}
	return all, errors.Join(errs...)
}

func partialOf(text string) (bool, error) {
	if text == "" {
		return false, nil
	}
	partial, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("the credential %q is %q: it is true or false", partialKey, text)
	}
	return partial, nil
}

// list joins names for an error.
func list[T ~string](names []T) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(name))
	}
	return b.String()
}
