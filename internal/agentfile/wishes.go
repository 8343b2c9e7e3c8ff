package agentfile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor/internal/permission"
)

// Wish is something that a definition says to be executed or approved. Who clones
// a project has not chosen it, so that it counts only if the user trusts it.
type Wish struct {
	Key   string `json:"key"`   // of the front matter; "text" for commands in it
	Value string `json:"value"` // for people
}

// Wishes returns what counts only if the user trusts it. There is nothing of that
// in what is built in, or the user's own.
func (d Definition) Wishes() []Wish {
	if d.Source.Scope == Builtin || d.Source.Scope == User {
		return nil
	}
	var list []Wish
	for _, t := range d.CustomTools {
		list = append(list, Wish{"custom_tools", t.Name + ": " + words(t.Command)})
	}
	for _, name := range slices.Sorted(maps.Keys(d.MCPServers)) {
		s := d.MCPServers[name]
		value := name + ": " + s.URL
		if s.Command != "" {
			value = name + ": " + words(append([]string{s.Command}, s.Args...))
		}
		list = append(list, Wish{"mcp_servers", value})
	}
	for _, h := range d.Hooks {
		list = append(list, Wish{"hooks", h.String()})
	}
	for _, line := range d.UsesCommands() {
		list = append(list, Wish{"text", "!`" + line + "`"})
	}
	for _, tool := range d.Tools {
		if !harmless(tool) {
			list = append(list, Wish{"tools", tool})
		}
	}
	if d.Memory == UserMemory { // which other projects' agents of that name have written
		list = append(list, Wish{"memory", string(d.Memory)})
	}
	switch d.PermissionMode {
	case permission.ModeBypass, permission.ModeAuto:
		list = append(list, Wish{"permission_mode", d.PermissionMode})
	}
	return list
}

func words(argv []string) string { return fmt.Sprintf("%q", argv) }

// harmless tells whether a tool that is approved does no more than what the
// default mode allows in a folder.
func harmless(tool string) bool {
	name, _, _ := strings.Cut(tool, "(")
	switch name {
	case "Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "NotebookRead", "Grep", "Glob", "LS", "TodoWrite", "TodoRead",
		"Task", "Agent", "TaskOutput", "TaskStop", "AskUserQuestion", "ExitPlanMode", "EnterPlanMode":
		return true
	}
	// The first is a wish by itself; the others start runs within the limits of this one.
	return strings.HasPrefix(name, "mcp__"+CustomServer+"__") || name == "mcp__nestor" || strings.HasPrefix(name, "mcp__nestor__")
}

// Fingerprint stands for all that the definition wishes: a change of any of that
// changes it, and nothing else does. It is empty if there is nothing.
func (d Definition) Fingerprint() string {
	list := d.Wishes()
	if len(list) == 0 {
		return ""
	}
	data, err := json.Marshal(struct {
		Wishes  []Wish
		Tools   []CustomTool
		Servers map[string]MCPServer
		Hooks   []Hook `json:",omitempty"`
	}{list, d.CustomTools, d.MCPServers, d.Hooks})
	if err != nil {
		panic(err) // it came from JSON
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
