package claudecode

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

// Each row of the table of options.
func TestOptions(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "calc", Version: "1"}, nil)
	for _, test := range []struct {
		row    string
		config agent.Config
		got    func(claude.Options) any
		want   any
	}{
		{"instructions", agent.Config{Instructions: "be brief"}, func(o claude.Options) any { return o.SystemPrompt }, claude.SystemPrompt{Text: "be brief"}},
		{"no instructions", agent.Config{}, func(o claude.Options) any { return o.SystemPrompt }, claude.SystemPrompt{}},
		{"model", agent.Config{Model: "opus"}, func(o claude.Options) any { return o.Model }, "opus"},
		{"no model", agent.Config{}, func(o claude.Options) any { return o.Model }, ""},
		{"all tools", agent.Config{}, func(o claude.Options) any { return [][]string{o.Tools, o.AutoApprove} }, [][]string{nil, nil}},
		{"no tools", agent.Config{AllowedTools: []string{}}, func(o claude.Options) any { return o.Tools }, []string{}},
		{"built-in tools of a list", agent.Config{AllowedTools: []string{"Read", "Bash(git log *)", "Bash(ls)", "mcp__calc__add"}},
			func(o claude.Options) any { return o.Tools }, []string{"Read", "Bash"}},
		{"rules of a list", agent.Config{AllowedTools: []string{"Read", "Bash(git log *)", "mcp__calc__add"}},
			func(o claude.Options) any { return o.AutoApprove }, []string{"Read", "Bash(git log *)", "mcp__calc__add"}},
		{"default permission mode", agent.Config{}, func(o claude.Options) any { return o.PermissionMode }, claude.ModeAcceptEdits},
		{"default permission mode with a list", agent.Config{AllowedTools: []string{"Read"}}, func(o claude.Options) any { return o.PermissionMode }, claude.ModeAcceptEdits},
		{"permission mode", agent.Config{PermissionMode: "plan"}, func(o claude.Options) any { return o.PermissionMode }, claude.ModePlan},
		{"bypass is meant", agent.Config{PermissionMode: "bypassPermissions"}, func(o claude.Options) any { return o.AllowBypass }, true},
		{"otherwise not", agent.Config{}, func(o claude.Options) any { return o.AllowBypass }, false},
		{"dir", agent.Config{Dir: "/work"}, func(o claude.Options) any { return o.Dir }, "/work"},
		{"no dir", agent.Config{}, func(o claude.Options) any { return o.Dir }, ""},
		{"no setting sources", agent.Config{}, func(o claude.Options) any { return o.SettingSources }, []claude.SettingSource{}},
		{"setting sources", agent.Config{SettingSources: []string{"user", "project"}}, func(o claude.Options) any { return o.SettingSources }, []claude.SettingSource{"user", "project"}},
		{"no settings, no servers of theirs", agent.Config{}, func(o claude.Options) any { return o.StrictMCP }, true},
		{"settings and their servers", agent.Config{SettingSources: []string{"user"}}, func(o claude.Options) any { return o.StrictMCP }, false},
		{"MCP servers", agent.Config{MCPServers: map[string]agent.MCPServer{
			"a": {Command: "a", Args: []string{"-x"}, Env: map[string]string{"K": "V"}},
			"b": {URL: "http://b", Headers: map[string]string{"H": "V"}},
			"c": {Server: server},
		}}, func(o claude.Options) any { return o.MCPServers }, map[string]claude.MCPServer{
			"a": claude.StdioServer{Command: "a", Args: []string{"-x"}, Env: map[string]string{"K": "V"}},
			"b": claude.HTTPServer{URL: "http://b", Headers: map[string]string{"H": "V"}},
			"c": &claude.InProcess{Server: server},
		}},
		{"schema", agent.Config{Schema: json.RawMessage(`{}`)}, func(o claude.Options) any { return o.Schema }, json.RawMessage(`{}`)},
		{"max turns", agent.Config{Limits: agent.Limits{MaxTurns: 3}}, func(o claude.Options) any { return o.MaxTurns }, 3},
		{"budget", agent.Config{Limits: agent.Limits{MaxBudgetUSD: 0.5}}, func(o claude.Options) any { return o.MaxBudgetUSD }, 0.5},
		{"no partial messages", agent.Config{}, func(o claude.Options) any { return o.PartialMessages }, false},
		{"partial messages", agent.Config{Credentials: map[string]string{"partial": "true"}}, func(o claude.Options) any { return o.PartialMessages }, true},
		{"path", agent.Config{}, func(o claude.Options) any { return o.Path }, "/cli"},
		{"environment, in order", agent.Config{Env: []string{"A=config"}}, func(o claude.Options) any { return o.Env },
			[]string{"A=provider", "A=config"}},
	} {
		t.Run(test.row, func(t *testing.T) {
			opts, err := New(Options{Path: "/cli", Env: []string{"A=provider"}}).optionsOf(test.config)
			if err != nil {
				t.Fatal(err)
			}
			if got := test.got(opts); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %#v, want %#v", got, test.want)
			}
		})
	}
}

// What others need to log in changes nothing.
func TestCredentialsOfOthersAreIgnored(t *testing.T) {
	p := New(Options{})
	plain, err := p.optionsOf(agent.Config{})
	if err != nil {
		t.Fatal(err)
	}
	with, err := p.optionsOf(agent.Config{Credentials: map[string]string{
		"mode": "query", "api_key": "sk-secret", "auth_token": "secret", "base_url": "http://elsewhere",
	}})
	if err != nil || !reflect.DeepEqual(plain, with) {
		t.Errorf("with keys the options are %+v, %v", with, err)
	}
}

func TestBadConfig(t *testing.T) {
	for _, test := range []struct {
		config agent.Config
		want   string
	}{
		{agent.Config{Credentials: map[string]string{"mode": "telepathy"}}, `there is no mode "telepathy"; there are: query, client`},
		{agent.Config{PermissionMode: "yolo"}, `there is no permission mode "yolo"; there are: default, acceptEdits, bypassPermissions, plan, dontAsk, auto`},
		{agent.Config{SettingSources: []string{"global"}}, `there is no setting source "global"; there are: user, project, local`},
		{agent.Config{MCPServers: map[string]agent.MCPServer{"x": {}}}, `MCP server "x" has 0 of Command, URL, Server and Tools: set one`},
		{agent.Config{MCPServers: map[string]agent.MCPServer{"x": {Command: "a", URL: "b"}}}, `MCP server "x" has 2 of Command, URL, Server and Tools: set one`},
		{agent.Config{Credentials: map[string]string{"partial": "maybe"}}, `the credential "partial" is "maybe"`},
	} {
		a, err := New(Options{}).Create(t.Context(), test.config)
		if a != nil || err == nil || !strings.Contains(err.Error(), test.want) || !isProviderError(err) {
			t.Errorf("%+v: %v, want %s", test.config, err, test.want)
		}
	}
}

// The keys that the host has are not there for the CLI, unless somebody names
// them; everything else is.
func TestEnvironment(t *testing.T) {
	for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "NESTOR_TEST_INHERITED"} {
		t.Setenv(name, "inherited")
	}
	path, env := claudetest.Fake("environ")
	for _, test := range []struct {
		name             string
		provider, config []string
		want             string
	}{
		{"ANTHROPIC_API_KEY", nil, nil, "false "},
		{"ANTHROPIC_AUTH_TOKEN", nil, nil, "false "},
		{"NESTOR_TEST_INHERITED", nil, nil, "true inherited"},
		{"ANTHROPIC_API_KEY", []string{"ANTHROPIC_API_KEY=given"}, nil, "true given"},
		{"ANTHROPIC_API_KEY", []string{"ANTHROPIC_API_KEY=given"}, []string{"ANTHROPIC_API_KEY=own"}, "true own"},
		{"ANTHROPIC_AUTH_TOKEN", nil, []string{"ANTHROPIC_AUTH_TOKEN=own"}, "true own"},
	} {
		a := create(t, New(Options{Path: path, Env: slices.Concat(env, test.provider)}), agent.Config{Name: "ada", Env: test.config})
		if got := answer(t, a, test.name); got != test.want {
			t.Errorf("%s with %q and %q is %q, want %q", test.name, test.provider, test.config, got, test.want)
		}
	}
	replaced := New(Options{Path: path, Env: env, ReplaceEnv: true})
	for _, base := range [][]string{nil, {"NESTOR_TEST_INHERITED=base"}} {
		a := create(t, replaced, agent.Config{Name: "ada", BaseEnv: base})
		if got := answer(t, a, "NESTOR_TEST_INHERITED"); got != "false " {
			t.Errorf("with the environment replaced, over %q, it is %q", base, got)
		}
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	a := create(t, fake("busy"), client(agent.Config{Name: "ada", Limits: agent.Limits{Timeout: time.Second}}))
	_, err := say(t, bounded(t), a, "work")
	checkError(t, err, agent.ErrTimeout, 0, "not handled within 1s")
	if state, _ := a.State(); state != agent.Failed {
		t.Errorf("the agent is %s", state)
	}
	if got := answer(t, a, "again"); got != "again" {
		t.Errorf("afterwards it answers %q", got)
	}
}
