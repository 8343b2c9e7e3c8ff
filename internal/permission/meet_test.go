package permission

import (
	"slices"
	"testing"
)

func TestToolsOfBothLists(t *testing.T) {
	for _, test := range []struct{ a, b, want []string }{
		{nil, nil, nil},
		{nil, []string{"Read"}, []string{"Read"}},
		{[]string{"Read"}, nil, []string{"Read"}},
		{[]string{"Read"}, []string{}, []string{}},
		{[]string{"Read", "Bash"}, []string{"Bash(git *)", "Write"}, []string{"Bash(git *)"}},
		{[]string{"Bash(git *)"}, []string{"Bash"}, []string{"Bash(git *)"}},
		{[]string{"Bash(git *)"}, []string{"Bash(go *)"}, []string{}},
		{[]string{"mcp__a", "mcp__b__x"}, []string{"mcp__a__y", "mcp__b"}, []string{"mcp__a__y", "mcp__b__x"}},
		{[]string{"mcp__a__*"}, []string{"mcp__a__y"}, []string{"mcp__a__y"}},
		{[]string{"mcp__ab"}, []string{"mcp__a__y"}, []string{}},
	} {
		if got := MeetTools(test.a, test.b); !slices.Equal(got, test.want) || (got == nil) != (test.want == nil) {
			t.Errorf("%q and %q are %q, want %q", test.a, test.b, got, test.want)
		}
	}
}

func TestTheStricterModeCounts(t *testing.T) {
	for _, test := range []struct{ a, b, want string }{
		{"", "", ""},
		{"", "plan", "plan"},
		{"bypassPermissions", "acceptEdits", "acceptEdits"},
		{"auto", "acceptEdits", "acceptEdits"},
		{"default", "acceptEdits", "default"},
		{"plan", "dontAsk", "plan"},
		{"bypassPermissions", "of a newer CLI", "of a newer CLI"},
	} {
		if got := StricterMode(test.a, test.b); got != test.want {
			t.Errorf("of %q and %q %q counts, want %q", test.a, test.b, got, test.want)
		}
		if got := StricterMode(test.b, test.a); got != test.want {
			t.Errorf("of %q and %q %q counts, want %q", test.b, test.a, got, test.want)
		}
	}
	for _, mode := range Modes() {
		if !slices.Contains(strictness, mode) {
			t.Errorf("how strict %s is, is not said", mode)
		}
	}
}
