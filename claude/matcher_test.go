package claude

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cliMatches tells what the CLI does with a matcher, as measured on 2.1.289.
func cliMatches(t *testing.T, pattern, name string) bool {
	t.Helper()
	if pattern == "" || pattern == "*" {
		return true
	}
	if regexp.MustCompile(`^[\w\-, |]*$`).MatchString(pattern) {
		parts := strings.FieldsFunc(pattern, func(r rune) bool { return r == '|' || r == ',' })
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		return slices.Contains(parts, name)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		t.Fatalf("matcher %q: %v", pattern, err)
	}
	return re.MatchString(name)
}

func TestMatchers(t *testing.T) {
	tests := []struct {
		name string
		m    Matcher
		wire string
		yes  []string
		no   []string
	}{
		{"zero", Matcher{}, "", []string{"Bash", "mcp__x__y"}, nil},
		{"one tool", Tool("Bash"), "Bash", []string{"Bash"}, []string{"BashOutput", "bash"}},
		{"tools", Tool("Edit", "Write", "mcp__x__y"), "Edit|Write|mcp__x__y", []string{"Edit", "Write", "mcp__x__y"}, []string{"NotebookEdit", "mcp__x__yz"}},
		{"a server", MCPServerTools("x"), "^mcp__x__.*", []string{"mcp__x__a", "mcp__x__"}, []string{"mcp__xx__a", "mcp__y__a", "Bash", "mcp__plugin_mcp__x__a"}},
		{"servers, as the CLI spells them", MCPServerTools("my server", "claude.ai"), "^mcp__my_server__.*|^mcp__claude_ai__.*", []string{"mcp__my_server__a", "mcp__claude_ai__b"}, []string{"mcp__claude-ai__b"}},
		{"file names", Exactly("go.mod", "a|b"), `^(?:go\.mod|a\|b)$`, []string{"go.mod", "a|b"}, []string{"goxmod", "a", "b", "xgo.mod"}},
		{"sources", Exactly("startup", "resume"), "startup|resume", []string{"resume"}, []string{"clear"}},
		{"a pattern", Pattern("^Notebook"), "^Notebook", []string{"NotebookEdit"}, []string{"Edit"}},
		{"a pattern is not tied down", Pattern("Edit.*"), "Edit.*", []string{"NotebookEdit", "Edit"}, []string{"Write"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.m.err != nil || tt.m.String() != tt.wire {
				t.Fatalf("got %q, %v, want %q", tt.m.pattern, tt.m.err, tt.wire)
			}
			for _, name := range tt.yes {
				if !cliMatches(t, tt.wire, name) {
					t.Errorf("does not match %s", name)
				}
			}
			for _, name := range tt.no {
				if cliMatches(t, tt.wire, name) {
					t.Errorf("matches %s", name)
				}
			}
		})
	}
}

func TestMatchersThatMatchNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		m    Matcher
		says string
	}{
		"no name":            {Tool(), "zero Matcher"},
		"an empty name":      {Tool("Bash", ""), "zero Matcher"},
		"a star":             {Tool("*"), "zero Matcher"},
		"space":              {Exactly(" Bash"), "no name"},
		"a server as a tool": {Tool("mcp__github"), `MCPServerTools("github")`},
		"no server":          {MCPServerTools(), "Pattern"},
		"an empty server":    {MCPServerTools(""), "empty"},
		"a name as pattern":  {Pattern("mcp__github"), "exact name"},
		"everything":         {Pattern("*"), "zero Matcher"},
		"nothing":            {Pattern(""), "zero Matcher"},
		"half a pattern":     {Pattern("(Bash"), "missing"},
		"half a class":       {Pattern("[Bash"), "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			wantSaid(t, tt.m.err, tt.says)
			if !strings.HasPrefix(tt.m.String(), "invalid matcher: ") {
				t.Errorf("String is %q", tt.m)
			}
		})
	}
	for _, expr := range []string{`(?=Bash)`, `(?<!Notebook)Edit`, `(a)\1`, `\cJ`} {
		t.Run("JavaScript knows "+expr, func(t *testing.T) {
			if m := Pattern(expr); m.err != nil || m.pattern != expr {
				t.Errorf("got %q, %v", m.pattern, m.err)
			}
		})
	}
}

// A matcher made of names matches these names and no other.
func FuzzExactly(f *testing.F) {
	f.Add("Bash", "go.mod", "x")
	f.Add("a|b", "a", "b")
	f.Add("a,b", "(", "\\")
	f.Fuzz(func(t *testing.T, a, b, other string) {
		m := Exactly(a, b)
		for _, s := range []string{a, b, other} {
			if strings.ToValidUTF8(s, "") != s {
				return // JSON cannot carry it
			}
		}
		if m.err != nil {
			return
		}
		if !cliMatches(t, m.pattern, a) || !cliMatches(t, m.pattern, b) {
			t.Errorf("%q does not match %q and %q", m.pattern, a, b)
		}
		if other != a && other != b && cliMatches(t, m.pattern, other) {
			t.Errorf("%q matches %q", m.pattern, other)
		}
	})
}
