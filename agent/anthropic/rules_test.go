package anthropic

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/agent/anthropic/tools"
)

func bashInput(command string) json.RawMessage {
	raw, _ := json.Marshal(map[string]string{"command": command})
	return raw
}

// A rule about commands allows that command, and none that smuggles another.
func TestBashRules(t *testing.T) {
	for _, test := range []struct {
		rule    string
		command string
		want    bool
	}{
		{"Bash", "anything; at all", true},
		{"Bash(*)", "anything; at all", true},
		{"Bash(git *)", "git status", true},
		{"Bash(git *)", "git", true},
		{"Bash(git *)", "gitk", false},
		{"Bash(git *)", "git commit -m 'a; b && c | d > e'", true},
		{"Bash(git *)", `git commit -m "a; b && c"`, true},
		{"Bash(git *)", `git commit -m "say \"hi\"; ok"`, true},
		{"Bash(git *)", "git commit -m 'two\nlines'", true},
		{"Bash(git:*)", "git log", true},
		{"Bash(git:*)", "gitlog", false},
		{"Bash(git * main)", "git push origin main", true},
		{"Bash(git * main)", "git push origin next", false},
		{"Bash(npm test)", "npm test", true},
		{"Bash(npm test)", "npm test --all", false},
		{"Bash(a.b)", "axb", false},
		{"Bash(git *)", "git status; rm -rf /", false},
		{"Bash(git *)", "git status;rm -rf /", false},
		{"Bash(git *)", "git status && rm -rf /", false},
		{"Bash(git *)", "git status & rm -rf /", false},
		{"Bash(git *)", "git status | sh", false},
		{"Bash(git *)", "git status\nrm -rf /", false},
		{"Bash(git *)", "git status \\\nrm", false},
		{"Bash(git *)", "git $(rm -rf /)", false},
		{"Bash(git *)", "git `rm -rf /`", false},
		{"Bash(git *)", `git "$(rm -rf /)"`, false},
		{"Bash(git *)", "git \"`rm -rf /`\"", false},
		{"Bash(git *)", "git diff > ~/.profile", false},
		{"Bash(git *)", "git diff < /etc/passwd", false},
		{"Bash(git *)", "git <(rm -rf /)", false},
		{"Bash(git *)", `git $'a\''; rm -rf x #'`, false},
		{"Bash(git *)", `git 'a\'; rm -rf x #'`, false},
		{"Bash(git *)", `git "a\\"; rm -rf x #"`, false},
		{"Bash(git *)", "git 'unfinished", false},
		{"Bash(git *)", "git status\r rm", false},
		{"Bash(git *)", "FOO=1 git status", false},
		{"Bash(git *)", "", false},
	} {
		r, err := parseRule(test.rule)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.allows("Bash", bashInput(test.command), tools.Access{}, "/w"); got != test.want {
			t.Errorf("%s allows %q: %v, want %v", test.rule, test.command, got, test.want)
		}
	}
}

// A rule that denies finds its command in any part of the line.
func TestBashRulesThatDeny(t *testing.T) {
	r, _ := parseRule("Bash(rm *)")
	for command, want := range map[string]bool{
		"rm -rf x": true, "ls; rm -rf x": true, "ls && rm x": true, "echo $(rm x)": true, "ls | rm x": true,
		"ls": false, "echo rm": false,
	} {
		if got := r.stops("Bash", bashInput(command), tools.Access{}, "/w"); got != want {
			t.Errorf("it stops %q: %v", command, got)
		}
	}
	if !r.stops("Bash", json.RawMessage(`{}`), tools.Access{}, "/w") {
		t.Error("a command that cannot be read passes")
	}
}

func TestPathRules(t *testing.T) {
	for _, test := range []struct {
		rule, tool, path string
		want             bool
	}{
		{"Edit(src/**)", "Edit", "/w/src/a/b.go", true},
		{"Edit(src/**)", "Write", "/w/src/b.go", true},
		{"Edit(src/**)", "Read", "/w/src/b.go", false},
		{"Edit(src/**)", "Edit", "/w/srcs/b.go", false},
		{"Edit(/src/*.go)", "Edit", "/w/src/b.go", true},
		{"Edit(/src/*.go)", "Edit", "/w/src/c/b.go", false},
		{"Edit(src)", "Edit", "/w/deep/src/b.go", true},
		{"Edit(*.md)", "Edit", "/w/a/b/c.md", true},
		{"Edit(*.md)", "Edit", "/w/a/b/c.mdx", false},
		{"Edit(**/x/**)", "Edit", "/w/a/x/c", true},
		{"Edit(src/**)", "Edit", "/else/src/b.go", false},
		{"Edit(//else/**)", "Edit", "/else/src/b.go", true},
		{"Edit(~/x)", "Edit", "/home/x/x", false},
		{"Read(docs/**)", "Grep", "/w/docs/a", true},
		{"Edit", "Edit", "/w/any", true},
		{"Edit", "Write", "/w/any", false},
		{"Edit(src/**)", "Edit", "", false},
		{"Edit([)", "Edit", "/w/a", false},
	} {
		r, err := parseRule(test.rule)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.allows(test.tool, nil, tools.Access{Path: test.path}, "/w"); got != test.want {
			t.Errorf("%s allows %s of %s: %v, want %v", test.rule, test.tool, test.path, got, test.want)
		}
	}
}

func TestOtherRules(t *testing.T) {
	for _, test := range []struct {
		rule, tool, host string
		want             bool
	}{
		{"mcp__github", "mcp__github__issue", "", true},
		{"mcp__github__*", "mcp__github__issue", "", true},
		{"mcp__github__issue", "mcp__github__issue", "", true},
		{"mcp__github__issue", "mcp__github__issues", "", false},
		{"mcp__git", "mcp__github__issue", "", false},
		{"mcp__*", "mcp__github__issue", "", false},
		{"WebFetch(domain:example.com)", "WebFetch", "Example.com", true},
		{"WebFetch(domain:example.com)", "WebFetch", "evil.example.com", false},
		{"WebFetch(domain:*.example.com)", "WebFetch", "a.example.com", true},
		{"WebFetch(domain:example.com)", "WebFetch", "", false},
		{"Task(reviewer)", "Task", "", false},
	} {
		r, err := parseRule(test.rule)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.allows(test.tool, nil, tools.Access{Host: test.host}, "/w"); got != test.want {
			t.Errorf("%s allows %s of %s: %v", test.rule, test.tool, test.host, got)
		}
	}
	for _, bad := range []string{"", "(x)", "Bash(git *", "Bash, Edit"} {
		if _, err := parseRule(bad); err == nil || !strings.Contains(err.Error(), "is no rule") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// No command line that a rule allows has anything unquoted that ends a command.
func FuzzSimpleCommands(f *testing.F) {
	for _, seed := range []string{"git status", `git "a;b"`, `git $'a\''; rm #'`, "git 'a\\'; rm", "git \\; x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, command string) {
		if !simple(command) {
			return
		}
		// Without quoted parts and escapes, nothing may be left that a shell
		// reads as more than words.
		bare, rest := "", command
		for rest != "" {
			switch c := rest[0]; {
			case c == '\\' && len(rest) > 1:
				rest = rest[2:]
			case c == '\'':
				end := strings.IndexByte(rest[1:], '\'')
				if end < 0 {
					t.Fatalf("%q has an open quote", command)
				}
				rest = rest[end+2:]
			case c == '"':
				end := 1
				for end < len(rest) && rest[end] != '"' {
					if rest[end] == '\\' {
						end++
					} else if strings.IndexByte("`$", rest[end]) >= 0 {
						t.Fatalf("%q substitutes in quotes", command)
					}
					end++
				}
				if end >= len(rest) {
					t.Fatalf("%q has an open quote", command)
				}
				rest = rest[end+1:]
			default:
				bare, rest = bare+string(c), rest[1:]
			}
		}
		if strings.ContainsAny(bare, ";&|<>()`$\n\r") {
			t.Errorf("%q passes as simple, with %q in it", command, bare)
		}
	})
}
