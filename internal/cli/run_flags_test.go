package cli

import (
	"slices"
	"testing"

	"github.com/dfaf701a/nestor/api"
)

// What flags say is for the run of the command: a daemon that it becomes gives runs of
// other commands nothing of it.
func TestFlagsAreForOneRun(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	cmd := newRun()
	if err := cmd.ParseFlags([]string{"--tools", "Bash", "--role", "monitor", "--permission-mode", "bypassPermissions", "--max-budget-usd", "1", "--max-memory", "1000000", "--provider", "scripted"}); err != nil {
		t.Fatal(err)
	}
	task, d, err := rootTask(cmd, "hello", runOptions{dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	o, err := api.ParseTaskOptions(task.Data)
	if err != nil {
		t.Fatal(err)
	}
	if !o.Whole || !slices.Equal(o.Tools, []string{"Bash"}) || o.Role != "monitor" || o.PermissionMode != "bypassPermissions" || task.Limits.BudgetUSD != 1 || o.Resources.Memory != 1000000 || task.Provider != "scripted" {
		t.Errorf("the task has %+v and %+v", task, o)
	}
	if w := d.Worker; w.Tools != nil || w.Role != "" || w.Mode == "bypassPermissions" || d.Limits.BudgetUSD != 0 || w.Limits.Memory != 0 || w.Provider == "scripted" {
		t.Errorf("the daemon has %+v and %+v", d.Limits, w)
	}
}
