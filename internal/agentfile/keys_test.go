package agentfile

import (
	"os"
	"strings"
	"testing"
)

// Every key that has an effect is in the docs.
func TestKeysAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, k := range keys {
		known := name == "disallowed-tools" // another spelling
		if k.read != nil && !known && !strings.Contains(string(data), "`"+name+"`") {
			t.Errorf("docs/agents.md says nothing of %s", name)
		}
	}
	for _, name := range functions {
		if !strings.Contains(string(data), "`"+name+"`") && !strings.Contains(string(data), "{{"+name+" ") && name != "ne" && name != "lt" && name != "le" && name != "gt" {
			t.Errorf("docs/agents.md says nothing of the function %s", name)
		}
	}
	for name := range variables {
		if !strings.Contains(string(data), "{{."+name) {
			t.Errorf("docs/agents.md says nothing of .%s", name)
		}
	}
}
