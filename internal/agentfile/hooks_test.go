package agentfile_test

import (
	"testing"

	"github.com/dfaf701a/nestor/internal/agentfile"
)

func TestMatchersOfHooks(t *testing.T) {
	for _, test := range []struct {
		matcher, subject string
		want             bool
	}{
		{"", "Bash", true},
		{"*", "Bash", true},
		{"Bash", "Bash", true},
		{"Bash", "BashOutput", false}, // a name is whole
		{"Edit|Write", "Write", true},
		{"Edit, Write", "Write", true},
		{"Edit|Write", "MultiEdit", false},
		{"mcp__.*__write", "mcp__files__write_all", true}, // a pattern is found anywhere
		{"^Edit$", "MultiEdit", false},
		{"^(?!Bash)", "Bash", true}, // what cannot be read leaves no guard asleep
	} {
		if got := (agentfile.Hook{Matcher: test.matcher}).Fits(test.subject); got != test.want {
			t.Errorf("%q fits %q: %v", test.matcher, test.subject, got)
		}
	}
}

// What a project wants to be executed needs trust, and a change of it needs it again.
func TestHooksNeedTrust(t *testing.T) {
	d := agentfile.Definition{Source: agentfile.Source{Scope: agentfile.Project}, Hooks: []agentfile.Hook{{Event: "Stop", Command: "make"}}}
	before := d.Fingerprint()
	if list := d.Wishes(); len(list) != 1 || list[0] != (agentfile.Wish{Key: "hooks", Value: "Stop: make"}) || before == "" {
		t.Errorf("it wants %v, %q", list, before)
	}
	for name, h := range map[string]agentfile.Hook{
		"command": {Event: "Stop", Command: "make all"}, "event": {Event: "PreToolUse", Command: "make"}, "matcher": {Event: "Stop", Matcher: "x", Command: "make"},
		"arguments": {Event: "Stop", Command: "make", Args: []string{"all"}}, "no arguments": {Event: "Stop", Command: "make", Args: []string{}},
	} {
		d.Hooks[0] = h
		if d.Fingerprint() == before {
			t.Errorf("another %s needs no trust", name)
		}
	}
	d.Source.Scope = agentfile.User
	if d.Fingerprint() != "" {
		t.Error("one's own hooks need trust")
	}
	d = agentfile.Definition{Source: agentfile.Source{Scope: agentfile.Project}, Memory: agentfile.UserMemory}
	if d.Fingerprint() == "" {
		t.Error("a project's agent has the user's memory without trust")
	}
}
