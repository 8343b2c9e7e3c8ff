package anthropic

import (
	"encoding/json"
	"testing"

	"github.com/dfaf701a/nestor/agent/anthropic/tools"
	"github.com/dfaf701a/nestor/internal/permission"
)

func bashInput(command string) json.RawMessage {
	raw, _ := json.Marshal(map[string]string{"command": command})
	return raw
}

func parseRules(t *testing.T, texts ...string) (rules []permission.Rule) {
	t.Helper()
	for _, text := range texts {
		r, err := permission.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	return rules
}

// What rules mean is tested where they are; here, what of a call they are told.
func TestRulesAreToldOfCalls(t *testing.T) {
	for _, test := range []struct {
		rule    string
		tool    string
		command string
		access  tools.Access
		want    bool
	}{
		{"Bash(git *)", "Bash", "git status", tools.Access{}, true},
		{"Bash(git *)", "Bash", "git status && git log", tools.Access{}, true},
		{"Bash(git *)", "Bash", "git status; rm -rf /", tools.Access{}, false},
		{"Bash(git *)", "Bash", "git status # '\nrm -rf /\n'", tools.Access{}, false},
		{"Bash(git *)", "Bash", "", tools.Access{}, false},
		{"Edit(src/**)", "Write", "", tools.Access{Path: "/w/src/b.go"}, true},
		{"Edit(src/**)", "Write", "", tools.Access{Path: "/w/b.go"}, false},
		{"Edit(src/**)", "Edit", "", tools.Access{Path: "/w/src/b.go", Outside: true}, false},
		{"Edit(//else/**)", "Edit", "", tools.Access{Path: "/else/b.go", Outside: true}, true},
		{"Edit", "Edit", "", tools.Access{Path: "/else/b.go", Outside: true}, true},
		{"Edit(src/**)", "Edit", "", tools.Access{}, false},
		{"WebFetch(domain:example.com)", "WebFetch", "", tools.Access{Host: "example.com"}, true},
		{"WebFetch(domain:example.com)", "WebFetch", "", tools.Access{Host: "evil.org"}, false},
		{"WebFetch(domain:example.com)", "WebFetch", "", tools.Access{}, false},
	} {
		about := target(test.tool, bashInput(test.command), test.access, "/w")
		if got := allowed(parseRules(t, test.rule), about, test.access.Outside); got != test.want {
			t.Errorf("%s allows %s %q of %+v: %v", test.rule, test.tool, test.command, test.access, got)
		}
	}
	deny := parseRules(t, "Bash(rm *)")[0]
	if !deny.Stops(target("Bash", json.RawMessage(`{}`), tools.Access{}, "/w")) {
		t.Error("a command that cannot be read passes")
	}
}
