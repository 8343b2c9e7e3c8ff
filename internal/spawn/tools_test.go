package spawn_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/internal/spawn"
)

var update = flag.Bool("update", false, "write schemas.json anew")

// The schemas that are part of the program are those of the types that inputs are read
// into.
func TestSchemasFollowFromTheTypes(t *testing.T) {
	all, err := spawn.InputSchemas()
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	want.WriteString("{")
	for i, name := range slices.Sorted(maps.Keys(all)) {
		text, err := json.Marshal(all[name])
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			want.WriteString(",")
		}
		fmt.Fprintf(&want, "\n%q: %s", name, text)
	}
	want.WriteString("\n}\n")
	if *update {
		if err := os.WriteFile("schemas.json", want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile("schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(is, want.Bytes()) {
		t.Error("schemas.json is not what follows from the types: write it with 'go test ./internal/spawn -run Schemas -update'")
	}
}

// A tool is called with anything, also without the protocol, and says what is wrong.
func TestToolsCheckTheirInput(t *testing.T) {
	tools := spawn.Server(newWorld().run(), true).Tools
	for _, test := range []struct{ tool, input, want string }{
		{"spawn", ``, "task"},
		{"spawn", `7`, "no JSON object"},
		{"spawn", `{"task":`, "no JSON object"},
		{"spawn", `{"task":7}`, "task"},
		{"spawn", `{"task":"look","parent":"x"}`, "parent"},
		{"wait", `{"runs":"one"}`, "runs"},
		{"send", `{"to":"all"}`, "content"},
		{"progress", `{"activity":"a","percent":"half"}`, "percent"},
	} {
		i := slices.IndexFunc(tools, func(tool agent.Tool) bool { return tool.Name == test.tool })
		if text, err := tools[i].Call(t.Context(), json.RawMessage(test.input)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %s: %q, %v", test.tool, test.input, text, err)
		}
	}
}
