package claude

import (
	"encoding/json"
	"testing"
)

func TestAgentDefinition(t *testing.T) {
	for name, tt := range map[string]struct {
		d    AgentDefinition
		want string
	}{
		"item 175: unset fields are left out": {AgentDefinition{Description: "d", Prompt: "p"}, `{"description":"d","prompt":"p"}`},
		"item 175: every field": {AgentDefinition{
			Description: "d", Prompt: "p", Tools: []string{"Read"}, RemoveTools: []string{"Bash"}, Model: "claude-opus-5-5",
			MCPServers: []AgentServer{{Name: "calc"}, {Name: "own", Config: StdioServer{Command: "c"}}},
			Skills:     []string{"pdf"}, InitialPrompt: "go", MaxTurns: 3, AutoCompactWindow: 4, Background: true, OmitClaudeMD: true,
			Memory: "project", Effort: AgentEffort{Level: EffortXHigh}, PermissionMode: ModePlan, Observer: "o", ObserverMessage: "m", Reminder: "r",
		}, `{"description":"d","prompt":"p","tools":["Read"],"disallowedTools":["Bash"],"model":"claude-opus-5-5",
			"mcpServers":["calc",{"own":{"type":"stdio","command":"c"}}],"skills":["pdf"],"initialPrompt":"go","maxTurns":3,
			"autoCompactWindow":4,"background":true,"omitClaudeMd":true,"memory":"project","effort":"xhigh","permissionMode":"plan",
			"observer":"o","observerMessage":"m","criticalSystemReminder_EXPERIMENTAL":"r"}`},
		"item 175: effort as a number": {AgentDefinition{Description: "d", Prompt: "p", Effort: AgentEffort{Number: 32}}, `{"description":"d","prompt":"p","effort":32}`},
		"no tools is not all tools":    {AgentDefinition{Description: "d", Prompt: "p", Tools: []string{}}, `{"description":"d","prompt":"p","tools":[]}`},
	} {
		t.Run(name, func(t *testing.T) { wantJSON(t, tt.d, tt.want) })
	}
	t.Run("an agent has no server in this process", func(t *testing.T) {
		_, err := json.Marshal(AgentServer{Name: "a", Config: &InProcess{Server: testServer()}})
		wantSaid(t, err, "Options.MCPServers")
	})
}
