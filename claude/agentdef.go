package claude

import (
	"encoding/json"
	"errors"
)

// AgentDefinition describes a subagent that Claude may call, or, named by
// Options.Agent, the main loop itself. Description and Prompt are required;
// the zero value of each other field leaves it to the CLI.
type AgentDefinition struct {
	Description string        `json:"description"` // when Claude should use it
	Prompt      string        `json:"prompt"`      // its system prompt
	Tools       []string      `json:"tools,omitzero"`
	RemoveTools []string      `json:"disallowedTools,omitempty"`
	Model       string        `json:"model,omitempty"` // an alias, an id, or "inherit"
	MCPServers  []AgentServer `json:"mcpServers,omitempty"`
	Skills      []string      `json:"skills,omitempty"` // loaded when it starts

	InitialPrompt     string         `json:"initialPrompt,omitempty"` // sent first when it is the main loop
	MaxTurns          int            `json:"maxTurns,omitempty"`
	AutoCompactWindow int            `json:"autoCompactWindow,omitempty"` // tokens
	Background        bool           `json:"background,omitempty"`        // always runs in the background
	OmitClaudeMD      bool           `json:"omitClaudeMd,omitempty"`
	Memory            string         `json:"memory,omitempty"` // user, project or local
	Effort            AgentEffort    `json:"effort,omitzero"`
	PermissionMode    PermissionMode `json:"permissionMode,omitempty"`

	Observer        string `json:"observer,omitempty"` // an agent that watches it
	ObserverMessage string `json:"observerMessage,omitempty"`
	Reminder        string `json:"criticalSystemReminder_EXPERIMENTAL,omitempty"`
}

// AgentEffort is how hard a subagent thinks: a level, or a number when that is
// not zero.
type AgentEffort struct {
	Level  Effort
	Number int
}

// MarshalJSON writes the number or the level.
func (e AgentEffort) MarshalJSON() ([]byte, error) {
	if e.Number != 0 {
		return json.Marshal(e.Number)
	}
	return json.Marshal(e.Level)
}

// AgentServer gives a subagent an MCP server: one that the session has, by
// name, or, with Config, one of its own.
type AgentServer struct {
	Name   string
	Config MCPServer // nil means the session's; never *InProcess
}

// MarshalJSON writes the name, or the name with its configuration.
func (s AgentServer) MarshalJSON() ([]byte, error) {
	if s.Config == nil {
		return json.Marshal(s.Name)
	}
	if _, ok := s.Config.(*InProcess); ok {
		return nil, errors.New("agent server " + s.Name + ": an in-process server goes into Options.MCPServers, and here by name")
	}
	return json.Marshal(map[string]MCPServer{s.Name: s.Config})
}

func (d *AgentDefinition) check() error {
	if d.Description == "" || d.Prompt == "" {
		return errors.New("it needs a Description and a Prompt")
	}
	for _, s := range d.MCPServers {
		if s.Name == "" {
			return errors.New("a server in MCPServers has an empty name")
		}
		if s.Config != nil {
			if err := s.Config.check(); err != nil {
				return err
			}
		}
	}
	return nil
}
