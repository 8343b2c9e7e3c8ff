package permission

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// The manual has the table of roles and the commands as they are.
func TestManual(t *testing.T) {
	raw, err := os.ReadFile("../../docs/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := strings.Join(strings.Fields(string(raw)), " ")
	for name, r := range builtin {
		if row := fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s | %s |", name, r.Read, r.Write, r.Bash, r.Git, r.Web, r.Spawn); !strings.Contains(manual, row) {
			t.Errorf("it does not have the row %s", row)
		}
	}
	if list := "`" + strings.Join(LimitedCommands(), " ") + "`"; !strings.Contains(manual, list) {
		t.Errorf("it does not have the commands %s", list)
	}
	for _, name := range slices.Sorted(maps.Keys(gitReads)) {
		if !strings.Contains(manual, "`"+name+"`") && !strings.Contains(manual, "`"+name+" ") {
			t.Errorf("it does not have git %s", name)
		}
	}
}
