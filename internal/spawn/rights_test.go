package spawn_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/spawn"
)

func taskWith(t testing.TB, o api.TaskOptions) nestor.Task {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return nestor.Task{Input: "above", Dir: "/p/work", Provider: "api", Model: "m", Swarm: "s", Label: "gpu", Priority: nestor.High, Data: data}
}

func optionsOf(t testing.TB, task nestor.Task) api.TaskOptions {
	t.Helper()
	o, err := api.ParseTaskOptions(task.Data)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestChildIsAsItsParentUnlessItAsksForLess(t *testing.T) {
	parent := taskWith(t, api.TaskOptions{Tools: []string{"Read", "Bash(git *)"}, PermissionMode: "acceptEdits", Role: "implementer", Sandbox: "files",
		Env: []string{"A=1", "B=2"}, Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Session: "not the child's"})
	task, err := spawn.Narrow(parent, api.TaskOptions{}, api.Spawn{Task: "below"})
	if err != nil {
		t.Fatal(err)
	}
	o := optionsOf(t, task)
	if task.Input != "below" || task.Dir != "/p/work" || task.Provider != "api" || task.Model != "m" || task.Swarm != "s" || task.Label != "gpu" || task.Priority != nestor.High {
		t.Errorf("the task is %+v", task)
	}
	above := []api.Bounds{{Role: "implementer", Tools: []string{"Read", "Bash(git *)"}, Swarm: "s", Dir: "/p/work"}}
	if !slices.Equal(o.Tools, []string{"Read", "Bash(git *)"}) || o.PermissionMode != "acceptEdits" || o.Role != "implementer" || o.Sandbox != "files" ||
		len(o.Env) != 2 || o.Session != "" || !strings.Contains(o.Trace, "4bf9") || !reflect.DeepEqual(o.Above, above) {
		t.Errorf("its options are %+v", o)
	}
	task, err = spawn.Narrow(parent, api.TaskOptions{}, api.Spawn{Task: "below", Tools: []string{"Bash", "Write"}, PermissionMode: "plan", Role: "critic",
		Sandbox: "strict", Env: []string{"B=2"}, Provider: "sdk", Dir: "docs"})
	if err != nil {
		t.Fatal(err)
	}
	o = optionsOf(t, task)
	if !slices.Equal(o.Tools, []string{"Bash(git *)"}) || o.PermissionMode != "plan" || o.Role != "critic" || o.Sandbox != "strict" || !slices.Equal(o.Env, []string{"B=2"}) ||
		task.Model != "" || task.Dir != "/p/work/docs" {
		t.Errorf("with less it is %+v, %+v", task, o)
	}
}

func TestChildGetsNothingMore(t *testing.T) {
	parent := taskWith(t, api.TaskOptions{Tools: []string{"Read"}, PermissionMode: "default", Sandbox: "strict"})
	task, err := spawn.Narrow(parent, api.TaskOptions{}, api.Spawn{Task: "below", Tools: []string{"Bash", "Read"}, PermissionMode: "bypassPermissions", Sandbox: "off"})
	if err != nil {
		t.Fatal(err)
	}
	if o := optionsOf(t, task); !slices.Equal(o.Tools, []string{"Read"}) || o.PermissionMode != "default" || o.Sandbox != "strict" {
		t.Errorf("it has %+v", o)
	}
	for _, s := range []api.Spawn{
		{Dir: "/etc"}, {Dir: ".."}, {Dir: "/p/work2"}, {Dir: "a/../../b"}, {Env: []string{"ANTHROPIC_BASE_URL=http://evil"}},
		{PermissionMode: "god"}, {Sandbox: "none"}, {Hosts: []string{"http://a.org"}}, {Hosts: []string{"*"}},
	} {
		if _, err := spawn.Narrow(parent, api.TaskOptions{}, s); !isProblem(err) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// reaches tells whether a list of hosts lets a place be reached.
func reaches(list []string, place permission.Endpoint) bool {
	return list == nil || slices.ContainsFunc(list, func(text string) bool {
		h, err := permission.ParseHost(text)
		return err == nil && h.Holds(place)
	})
}

func isProblem(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && (p.Status == 400 || p.Status == 403)
}

// However deep, and whatever is asked for on the way, nothing is more than above.
func TestRightsOnlyNarrow(t *testing.T) {
	modes := []string{"plan", "dontAsk", "default", "acceptEdits", "auto", "bypassPermissions"}
	levels := []string{"strict", "files", "off"}
	tools := rapid.SliceOfN(rapid.SampledFrom([]string{"Read", "Bash", "Bash(git *)", "Bash(ls)", "Write", "mcp__a__b"}), 0, 4)
	hosts := rapid.SliceOfN(rapid.SampledFrom([]string{"a.org", "*.a.org", "b.a.org:443", "*.b.a.org:8443", "c.net", "10.0.0.1"}), 0, 3)
	places := []permission.Endpoint{{Name: "a.org", Port: 80}, {Name: "b.a.org", Port: 443}, {Name: "x.b.a.org", Port: 8443}, {Name: "c.net", Port: 443}, {Name: "d.net", Port: 443}, {Addr: netip.MustParseAddr("10.0.0.1"), Port: 80}}
	rapid.Check(t, func(t *rapid.T) {
		maybe := func(list []string, label string) []string {
			if rapid.Bool().Draw(t, label+"?") {
				return nil
			}
			return append([]string{}, list...)
		}
		first := api.TaskOptions{Tools: maybe(tools.Draw(t, "tools"), "tools"), PermissionMode: rapid.SampledFrom(modes).Draw(t, "mode"), Sandbox: rapid.SampledFrom(levels).Draw(t, "level"), Hosts: maybe(hosts.Draw(t, "hosts"), "hosts")}
		data, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		task := nestor.Task{Dir: "/p", Data: data}
		for range rapid.IntRange(1, 5).Draw(t, "depth") {
			before, err := api.ParseTaskOptions(task.Data)
			if err != nil {
				t.Fatal(err)
			}
			s := api.Spawn{
				Task: "x", Tools: maybe(tools.Draw(t, "asked"), "asked"), Hosts: maybe(hosts.Draw(t, "asked hosts"), "asked hosts"),
				PermissionMode: rapid.SampledFrom(append(modes, "")).Draw(t, "mode"), Sandbox: rapid.SampledFrom(append(levels, "")).Draw(t, "level"),
			}
			if task, err = spawn.Narrow(task, api.TaskOptions{}, s); err != nil {
				t.Fatal(err)
			}
			after, err := api.ParseTaskOptions(task.Data)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Index(modes, after.PermissionMode) > slices.Index(modes, before.PermissionMode) || slices.Index(levels, after.Sandbox) > slices.Index(levels, before.Sandbox) {
				t.Fatalf("%+v became %+v", before, after)
			}
			for _, place := range places {
				if reaches(after.Hosts, place) != (reaches(before.Hosts, place) && reaches(s.Hosts, place)) || after.Hosts != nil && after.Sandbox != "strict" {
					t.Fatalf("%v: %q and %q became %q at %s", place, before.Hosts, s.Hosts, after.Hosts, after.Sandbox)
				}
			}
			for _, list := range [][]string{before.Tools, s.Tools} {
				if list == nil {
					continue
				}
				if after.Tools == nil {
					t.Fatalf("%v and %v became all", before.Tools, s.Tools)
				}
				for _, tool := range after.Tools {
					name, _, _ := strings.Cut(tool, "(")
					if !slices.Contains(list, tool) && !slices.Contains(list, name) {
						t.Fatalf("%v and %v became %v", before.Tools, s.Tools, after.Tools)
					}
				}
			}
		}
	})
}
