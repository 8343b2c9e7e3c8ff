package cli

import (
	"strings"
	"sync"

	"github.com/dfaf701a/nestor/claude"
)

// configKey is one thing that can be configured.
type configKey struct {
	name   string                // in files, in flags, in what is shown
	doc    string                // what it is, in a line
	flag   string                // that sets it; empty means the name
	also   string                // a variable that sets it besides its own, which goes before this one
	noEnv  bool                  // it has no variable of its own
	secret bool                  // its value is never shown
	many   bool                  // its flag may be repeated
	in     func(*config) setting // where its value is kept

	// trust tells whether a value in a project's file counts only if the user
	// trusts it; nil means that none needs it.
	trust func(words []string) bool
}

const (
	sdkEnvPrefix = "providers.sdk.env."
	sdkEnvKey    = sdkEnvPrefix + "NAME"
	apiKeyKey    = "providers.api.api_key"
	apiKeyFile   = "providers.api.api_key_file"
	askKey       = "asks.timeout"
)

// providers are what runs agents.
var providers = []string{"sdk", "api", "scripted"}

// configKeys is all that can be configured, which is not to be changed. Files,
// environment, flags, 'config show' and docs/config.md follow from it.
var configKeys = sync.OnceValue(func() []configKey {
	return append([]configKey{
		{name: "provider", doc: "what runs agents: the Claude CLI, our own loop over the Messages API, or a written conversation",
			in: func(c *config) setting { return choiceSetting{&c.Provider, providers} }},
		{name: "model", doc: "the model; a tier stands for what models says",
			in: func(c *config) setting {
				return textSetting{&c.Model, "a model's name, high-tier, medium-tier or low-tier"}
			}},
		{name: "models.high-tier", doc: "the model that high-tier stands for",
			in: func(c *config) setting { return entrySetting{c.Models, "high-tier", "a model's name"} }},
		{name: "models.medium-tier", doc: "the model that medium-tier stands for",
			in: func(c *config) setting { return entrySetting{c.Models, "medium-tier", "a model's name"} }},
		{name: "models.low-tier", doc: "the model that low-tier stands for",
			in: func(c *config) setting { return entrySetting{c.Models, "low-tier", "a model's name"} }},
		// NESTOR_TOOLS marks the processes that an agent's tools start.
		{name: "tools", noEnv: true, trust: someTools, doc: "the tools that exist, and need no question; unset means all",
			in: func(c *config) setting {
				return toolsSetting(&c.Tools)
			}},
		{name: "permission_mode", trust: widerMode, doc: "what happens to tool calls that no rule decides", flag: "permission-mode",
			in: func(c *config) setting { return choiceSetting{&c.PermissionMode, permissionModes()} }},
		{name: "role", doc: "what bounds a run: orchestrator, implementer, researcher, critic, reviewer, monitor or an own one; unset means none",
			in: func(c *config) setting { return textSetting{&c.Role, "a role's name"} }},
		{name: "sandbox", doc: "how an agent's processes are confined: not at all, to their files, or to these and the network", trust: weaker,
			in: func(c *config) setting { return choiceSetting{&c.Sandbox, []string{"off", "files", "strict"}} }},
		{name: "sandbox_hosts", trust: someTools, flag: "allow-host", many: true, doc: "the hosts that an agent's processes may reach, and no others, such as example.com, *.example.com or 10.0.0.5:8080; it means strict; unset means that no list bounds them",
			in: func(c *config) setting {
				return listSetting{&c.Hosts, "a list of hosts, such as [api.example.com, \"*.example.com\"]", checkHost}
			}},
		{name: "delegation", doc: "who starts agents for agents: this program, or the Claude CLI by its own tool",
			in: func(c *config) setting { return choiceSetting{&c.Delegation, []string{"pool", "cli"}} }},
		{name: "results.max_bytes", doc: "bytes of a result that go up to the agent that started the run", flag: "results-max-bytes",
			in: func(c *config) setting { return countSetting{&c.MaxResult, 1024} }},
		{name: askKey, doc: "how long a person may take to answer whether a tool may be used; if it is not set, nobody is asked where there is no terminal", flag: "ask-for",
			in: func(c *config) setting { return spanSetting{&c.AskFor, 0} }},
		{name: "workspace.kind", doc: "what a run works in: the folder itself, the workspace of its swarm, or a git worktree; unset chooses", flag: "workspace",
			in: func(c *config) setting {
				return choiceSetting{&c.Workspace.Kind, []string{"plain", "swarm", "worktree"}}
			}},
		{name: "workspace.base", doc: "the branch or commit where a worktree begins; unset means the one that is checked out",
			in: func(c *config) setting { return textSetting{&c.Workspace.Base, "a branch or commit"} }},
		{name: "workspace.setup", noEnv: true, trust: someTools, doc: "the command that makes a new worktree ready; unset means none",
			in: func(c *config) setting {
				return listSetting{p: &c.Workspace.Setup, what: "a command as a list, such as [make, deps]"}
			}},
		{name: "workspace.copy", doc: "files and folders of the project that are copied into a new worktree, such as .env",
			in: func(c *config) setting {
				return listSetting{p: &c.Workspace.Copy, what: "a list of paths, such as [.env]"}
			}},
		{name: "workspace.ports", doc: "how many TCP ports a run gets, at most 100",
			in: func(c *config) setting { return countSetting{&c.Workspace.Ports, 0} }},
		{name: "workspace.end", doc: "what becomes of a worktree when its run is over", flag: "workspace-end",
			in: func(c *config) setting {
				return choiceSetting{&c.Workspace.End, []string{"keep", "merge", "drop"}}
			}},
		{name: "workspace.approve", trust: nobody, doc: "who has to find the work in a worktree good before it is merged",
			in: func(c *config) setting {
				return choiceSetting{&c.Workspace.Approve, []string{"none", "critic", "person"}}
			}},
		{name: "workspace.collect.age", doc: "how long ago a run used its folder last that is collected; 0s means that age is no reason",
			in: func(c *config) setting { return spanSetting{&c.Workspace.Age, 0} }},
		{name: "workspace.collect.size", doc: "what folders of runs may have together before the oldest are collected; 0 means that size is no reason",
			in: func(c *config) setting { return sizeSetting{&c.Workspace.Size} }},
		{name: "env.pass", trust: someTools, doc: "variables of yours that a run's processes get, besides those that all do",
			in: func(c *config) setting {
				return listSetting{&c.Pass, "a list of variables, such as [GOPROXY, \"AWS_*\"]", checkVariable}
			}},
		{name: "slots", doc: "how many agents work at once",
			in: func(c *config) setting { return countSetting{&c.Slots, 1} }},

		{name: "limits.max_turns", doc: "turns of a run", flag: "max-turns",
			in: func(c *config) setting { return countSetting{&c.Limits.Turns, 1} }},
		{name: "limits.timeout", doc: "time of a run from its start, all attempts together, without waits for a usage limit", flag: "timeout",
			in: func(c *config) setting { return spanSetting{&c.Limits.Timeout, 1} }},
		{name: "limits.max_budget_usd", doc: "money of a run and all below it; 0 means no limit", flag: "max-budget-usd",
			in: func(c *config) setting { return amountSetting{&c.Limits.BudgetUSD} }},
		{name: "limits.max_depth", doc: "how deep below the root a run may be", flag: "max-depth",
			in: func(c *config) setting { return countSetting{&c.Limits.Depth, 1} }},
		{name: "limits.max_children", doc: "children of a run that live at once", flag: "max-children",
			in: func(c *config) setting { return countSetting{&c.Limits.Children, 1} }},
		{name: "limits.max_descendants", doc: "runs below a run, in all", flag: "max-descendants",
			in: func(c *config) setting { return countSetting{&c.Limits.Descendants, 1} }},
		{name: "limits.max_failures", doc: "runs that fail in a row, of those that a run starts, after which it may start no more", flag: "max-failures",
			in: func(c *config) setting { return countSetting{&c.Limits.Failures, 1} }},
		{name: "limits.max_attempts", doc: "attempts of a run when connections fail", flag: "max-attempts",
			in: func(c *config) setting { return countSetting{&c.Limits.Attempts, 1} }},
		{name: "limits.max_resumes", doc: "how often a run goes on after its worker was lost", flag: "max-resumes",
			in: func(c *config) setting { return countSetting{&c.Limits.Resumes, 1} }},
		{name: "limits.backoff", doc: "the pause before the second attempt; it doubles for each that follows", flag: "backoff",
			in: func(c *config) setting { return spanSetting{&c.Limits.Backoff, 1} }},
		{name: "limits.silence", doc: "time without a sign of life after which a run is ended; 0s means no limit", flag: "silence",
			in: func(c *config) setting { return spanSetting{&c.Limits.Silence, 0} }},
		{name: "limits.limit_wait", doc: "how far ahead the reset of a usage limit may be for a run to wait for it; 0s means that it does not wait", flag: "limit-wait",
			in: func(c *config) setting { return spanSetting{&c.Limits.LimitWait, 0} }},
		{name: "limits.memory", doc: "memory of a run's processes together: of each command of provider api, of all of provider sdk's CLI; 0 means no limit", flag: "max-memory",
			in: func(c *config) setting { return sizeSetting{&c.Resources.Memory} }},
		{name: "limits.processes", doc: "processes of a run at once, likewise; 0 means no limit", flag: "max-processes",
			in: func(c *config) setting { return countSetting{&c.Resources.Processes, 0} }},
		{name: "limits.cpu", doc: "processor time of a run's processes, likewise; 0s means no limit", flag: "max-cpu",
			in: func(c *config) setting { return spanSetting{&c.Resources.CPU, 0} }},
		{name: "limits.processors", doc: "processors that a run's processes use at once, likewise, where control groups can be used; 0 means no limit", flag: "max-processors",
			in: func(c *config) setting { return amountSetting{&c.Resources.Processors} }},

		{name: "providers.sdk.path", trust: always, doc: "the Claude CLI; unset means the one that is found",
			in: func(c *config) setting { return fileSetting{&c.SDK.Path, true} }},
		{name: sdkEnvKey, trust: always, noEnv: true, doc: "the variable NAME for the Claude CLI", flag: "env",
			in: func(c *config) setting { return variableSetting{&c.SDK.Env, "NAME"} }},
		{name: "providers.sdk.setting_sources", trust: always, doc: "whose settings the Claude CLI reads; unset means nobody's",
			in: func(c *config) setting {
				return listSetting{&c.SDK.Settings, "a list, some of [user, project, local]", oneOf("user", "project", "local")}
			}},
		{name: "providers.sdk.warm", doc: "how many CLIs are started ahead at most, for runs like those before; 0 means none",
			in: func(c *config) setting { return countSetting{&c.SDK.Warm, 0} }},
		{name: "providers.api.base_url", trust: always, also: "ANTHROPIC_BASE_URL", doc: "where the Messages API is; unset means Anthropic's own",
			in: func(c *config) setting { return addressSetting{&c.API.BaseURL, []string{"https", "http"}, false} }},
		{name: apiKeyKey, also: "ANTHROPIC_API_KEY", secret: true,
			doc: "the key of the Messages API; never in a project's file, and in your own only if nobody else can read it",
			in:  func(c *config) setting { return textSetting{&c.API.APIKey, "a key"} }},
		{name: apiKeyFile, trust: always, doc: "a file that holds the key of the Messages API, and nothing else",
			in: func(c *config) setting { return fileSetting{&c.API.APIKeyFile, false} }},
		{name: "providers.scripted.script", doc: "the conversation that provider scripted plays; unset means that it repeats what it is told",
			in: func(c *config) setting { return fileSetting{&c.Script, false} }},

		{name: "broker.url", trust: always, doc: "the cluster that runs are kept in; unset means that the daemon keeps them", flag: "broker",
			in: func(c *config) setting {
				return addressSetting{&c.Broker.URL, []string{"nats", "tls", "ws", "wss"}, true}
			}},
		{name: "broker.credentials", trust: always, doc: "a file with a user's JWT and key, for `broker.url`",
			in: func(c *config) setting { return fileSetting{&c.Broker.Credentials, false} }},
		{name: "broker.listen", trust: always, doc: "where the daemon's own broker listens for workers; unset means nowhere",
			in: func(c *config) setting { return hostPortSetting{&c.Broker.Listen} }},
		{name: "labels", doc: "of the worker inside the daemon: it takes the tasks with one of them, too",
			in: func(c *config) setting { return listSetting{&c.Label, "a list of labels, such as [gpu]", checkLabel} }},
		{name: "archive_after", doc: "how long after its end a tree leaves the log for the archive", flag: "archive-after",
			in: func(c *config) setting { return spanSetting{&c.ArchiveAfter, 0} }},
	}, roleKeys(anyRole)...)
})

// sdkEnvKeyOf makes of the key for all variables of the CLI that of one.
func sdkEnvKeyOf(k configKey, name string) configKey {
	k.name = sdkEnvPrefix + name
	k.in = func(c *config) setting { return variableSetting{&c.SDK.Env, name} }
	for _, word := range []string{"KEY", "TOKEN", "SECRET", "PASSWORD", "AUTH", "HEADERS"} {
		k.secret = k.secret || strings.Contains(strings.ToUpper(name), word)
	}
	return k
}

// variable returns the environment variable that sets k, or "" if none does.
func (k configKey) variable() string {
	if k.noEnv {
		return ""
	}
	return variablePrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(k.name))
}

// flagName returns the flag that sets k.
func (k configKey) flagName() string {
	if k.flag != "" {
		return "--" + k.flag
	}
	return "--" + k.name
}

func permissionModes() (names []string) {
	for _, mode := range []claude.PermissionMode{
		claude.ModeDefault, claude.ModeAcceptEdits, claude.ModeBypass, claude.ModePlan, claude.ModeDontAsk, claude.ModeAuto,
	} {
		names = append(names, string(mode))
	}
	return names
}

// flagWord is flagName without its dashes.
func (k configKey) flagWord() string { return strings.TrimLeft(k.flagName(), "-") }
