package permission

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/quick"
)

// Rules about commands allow those commands, and none that smuggles another.
func TestRulesThatAllowCommands(t *testing.T) {
	for _, test := range []struct {
		rules   string
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
		{"Bash(a*b*c)", "a-b-b-c", true},
		{"Bash(a*b*c)", "a-c-b", false},
		{"Bash(aa*a)", "aa", false},
		{"Bash(npm test)", "npm test", true},
		{"Bash(npm test)", "npm test --all", false},
		{"Bash(a.b)", "axb", false},

		{"Bash(git *)", "git status && git log", true},
		{"Bash(git *)", "git status; git log | git x", true},
		{"Bash(git *)", "git status && rm -rf /", false},
		{"Bash(git *) + Bash(npm *)", "git status && npm test", true},
		{"Bash(git *) + Bash(npm *)", "git status && npm test && rm x", false},
		{"Bash(git *)", "git status 2>&1 && git log >/dev/null", true},
		{"Bash(git *)", "git status 2>&1x", false},

		{"Bash(git *)", "git status; rm -rf /", false},
		{"Bash(git *)", "git status;rm -rf /", false},
		{"Bash(git *)", "git status & rm -rf /", false},
		{"Bash(git *)", "git status | sh", false},
		{"Bash(git *)", "git status\nrm -rf /", false},
		{"Bash(git *)", "git status \\\nrm", false},
		{"Bash(git *)", "git $(rm -rf /)", false},
		{"Bash(git *)", "git `rm -rf /`", false},
		{"Bash(git *)", `git "$(rm -rf /)"`, false},
		{"Bash(git *)", "git \"`rm -rf /`\"", false},
		{"Bash(git *)", "git diff > ~/.profile", false},
		{"Bash(git *)", "git diff >/dev/nullx", false},
		{"Bash(git *)", "git x &>/dev/null rm y", false},
		{"Bash(git *)", "git diff >/dev/null/../../x", false},
		{"Bash(git *)", "git diff < /etc/passwd", false},
		{"Bash(git *)", "git <(rm -rf /)", false},
		{"Bash(git *)", `git $'a\''; rm -rf x #'`, false},
		{"Bash(git *)", `git 'a\'; rm -rf x #'`, false},
		{"Bash(git *)", `git "a\\"; rm -rf x #"`, false},
		{"Bash(git *)", "git 'unfinished", false},
		{"Bash(git *)", "git status\r rm", false},
		{"Bash(git *)", "FOO=1 git status", false},
		{"Bash(git *)", "git x &&", true},
		{"Bash(git *)", "&& git x", false},
		{"Bash(git *)", "git status # '\nrm -rf /\n'", false},
		{"Bash(git *)", "git add ~/x ./*.go", true},
		{"Bash(if *)", "if x; then rm y; fi", false},
	} {
		list := rules(t, strings.Split(test.rules, " + ")...)
		_, got := Allowed(list, Target{Tool: "Bash", Command: test.command, Dir: "/w"})
		if got != test.want {
			t.Errorf("%s allows %q: %v, want %v", test.rules, test.command, got, test.want)
		}
	}
	if _, ok := Allowed(rules(t, "Bash(git *)"), Target{Tool: "Bash"}); ok {
		t.Error("a command that nobody can see is allowed")
	}
}

// A rule that denies finds its command in any part of the line, however it is
// written.
func TestRulesThatStopCommands(t *testing.T) {
	r := rules(t, "Bash(rm *)")[0]
	for command, want := range map[string]bool{
		"rm -rf x": true, "ls; rm -rf x": true, "ls && rm x": true, "echo $(rm x)": true, "ls | rm x": true, "ls & rm x": true, "ls\nrm x": true,
		"(rm x)": true, "{ rm x; }": true, "if true; then rm x; fi": true, "for a in b; do rm x; done": true, "! rm x": true, "rm": true,
		"r\\m x": true, "'rm' x": true, `"r"m x`: true, "/bin/rm x": true, "rm\tx": true, "rm  x": true, "A=1 rm x": true, "env A=1 rm x": true,
		"command rm x": true, "sudo -u me rm x": true, "timeout 5 rm x": true, "nohup nice -n 5 rm x": true, "xargs rm": true,
		"find . -exec rm '{}' +": true, "sh -c 'rm x'": true, "bash -lc \"ls; rm x\"": true, "sudo sh -c 'cd /; rm x'": true, "eval 'rm x'": true,
		"eval rm x": true, "echo `rm x`": true, "echo \"$(rm x)\"": true, "cat <(rm x)": true, "$(rm x)": true, "ls > x; rm y": true,
		"ls": false, "echo rm": false, "echo 'rm x'": false, "rmdir x": false, "git rm x": false, "ls rm x": false, "grep -r 'rm x' .": false,
	} {
		if got := r.Stops(Target{Tool: "Bash", Command: command, Dir: "/w"}); got != want {
			t.Errorf("it stops %q: %v, want %v", command, got, want)
		}
	}
	if !r.Stops(Target{Tool: "Bash", Dir: "/w"}) {
		t.Error("a command that nobody can see passes")
	}
	// What cannot be seen through in bounded time is stopped.
	for _, deep := range []string{strings.Repeat("env ", 9000) + "x", strings.Repeat("find . ", 4000) + strings.Repeat("x ", 4000),
		"sh -c " + strings.Repeat(`"sh -c `, 10) + "rm x"} {
		r.Stops(Target{Tool: "Bash", Command: deep, Dir: "/w"}) // returns
	}
	nested := "rm x"
	for range maxNesting + 2 {
		nested = "sh -c '" + strings.ReplaceAll(nested, "'", `'\''`) + "'"
	}
	if !r.Stops(Target{Tool: "Bash", Command: nested, Dir: "/w"}) {
		t.Error("a command in too many shells passes")
	}
}

func TestRulesAboutPaths(t *testing.T) {
	for _, test := range []struct {
		rule, tool, path string
		allows, stops    bool
	}{
		{"Edit(src/**)", "Edit", "/w/src/a/b.go", true, true},
		{"Edit(src/**)", "Write", "/w/src/b.go", true, true},
		{"Edit(src/**)", "NotebookEdit", "/w/src/b.ipynb", true, true},
		{"Edit(src/**)", "Read", "/w/src/b.go", false, false},
		{"Edit(src/**)", "Edit", "/w/srcs/b.go", false, false},
		{"Edit(./src/**)", "Edit", "/w/src/b.go", true, true},
		{"Edit(/src/*.go)", "Edit", "/w/src/b.go", true, true},
		{"Edit(/src/*.go)", "Edit", "/w/src/c/b.go", false, false},
		{"Edit(src)", "Edit", "/w/deep/src/b.go", true, true},
		{"Edit(*.md)", "Edit", "/w/a/b/c.md", true, true},
		{"Edit(*.md)", "Edit", "/w/a/b/c.mdx", false, false},
		{"Edit(**/x/**)", "Edit", "/w/a/x/c", true, true},
		{"Edit(src/**)", "Edit", "/else/src/b.go", false, false},
		{"Edit(//else/**)", "Edit", "/else/src/b.go", true, true},
		{"Edit(~/x)", "Edit", "/home/me/x", false, true},
		{"Read(~/.ssh/**)", "Read", "/home/me/.ssh/id", false, true},
		{"Read(~/.ssh/**)", "Read", "/home/me/x", false, false},
		{"Read(docs/**)", "Grep", "/w/docs/a", true, true},
		{"Edit", "Edit", "/w/any", true, true},
		{"Edit", "Write", "/w/any", false, false},
		{"Edit(src/**)", "Edit", "", false, true},
	} {
		r := rules(t, test.rule)[0]
		target := Target{Tool: test.tool, Path: test.path, Dir: "/w"}
		if _, got := Allowed([]Rule{r}, target); got != test.allows {
			t.Errorf("%s allows %s of %s: %v", test.rule, test.tool, test.path, got)
		}
		if got := r.Stops(target); got != test.stops {
			t.Errorf("%s stops %s of %s: %v", test.rule, test.tool, test.path, got)
		}
		// At the folder where it holds, it says the same from elsewhere.
		there := target
		there.Dir = "/elsewhere"
		if _, got := Allowed([]Rule{r.At("/w")}, there); got != test.allows {
			t.Errorf("%s allows %s of %s: %v", r.At("/w"), test.tool, test.path, got)
		}
		if got := r.At("/w").Stops(there); got != test.stops {
			t.Errorf("%s stops %s of %s: %v", r.At("/w"), test.tool, test.path, got)
		}
	}
	odd := rules(t, "Edit(*.go)")[0].At("/w/a[b]*c")
	if _, ok := Allowed([]Rule{odd}, Target{Tool: "Edit", Path: "/w/a[b]*c/x.go", Dir: "/"}); !ok {
		t.Errorf("%s is not for its own folder", odd)
	}
	if _, ok := Allowed([]Rule{odd}, Target{Tool: "Edit", Path: "/w/ab-c/x.go", Dir: "/"}); ok {
		t.Errorf("%s is for another folder", odd)
	}
	broken := Rule{"Edit", "["}
	if _, ok := Allowed([]Rule{broken}, Target{Tool: "Edit", Path: "/w/a", Dir: "/w"}); ok || !broken.Stops(Target{Tool: "Edit", Path: "/w/a", Dir: "/w"}) {
		t.Error("a broken pattern allows, or does not stop")
	}
}

func TestOtherRules(t *testing.T) {
	for _, test := range []struct {
		rule          string
		target        Target
		allows, stops bool
	}{
		{"mcp__github", Target{Tool: "mcp__github__issue"}, true, true},
		{"mcp__github__*", Target{Tool: "mcp__github__issue"}, true, true},
		{"mcp__github__get_*", Target{Tool: "mcp__github__get_issue"}, true, true},
		{"mcp__github__get_*", Target{Tool: "mcp__github__delete"}, false, false},
		{"mcp__github__issue", Target{Tool: "mcp__github__issue"}, true, true},
		{"mcp__github__issue", Target{Tool: "mcp__github__issues"}, false, false},
		{"mcp__git", Target{Tool: "mcp__github__issue"}, false, false},
		{"mcp__git*", Target{Tool: "mcp__github__issue"}, false, true},
		{"mcp__*", Target{Tool: "mcp__github__issue"}, false, true},
		{"*", Target{Tool: "mcp__github__issue"}, false, true},
		{"*", Target{Tool: "Bash"}, false, true},
		{"WebFetch(domain:example.com)", Target{Tool: "WebFetch", Host: "Example.com"}, true, true},
		{"WebFetch(domain:example.com)", Target{Tool: "WebFetch", Host: "evil.example.com"}, false, false},
		{"WebFetch(domain:*.example.com)", Target{Tool: "WebFetch", Host: "a.example.com"}, true, true},
		{"WebFetch(domain:*.example.com)", Target{Tool: "WebFetch", Host: "aexample.com"}, false, false},
		{"WebFetch(domain:example.com)", Target{Tool: "WebFetch"}, false, true},
		{"Task(reviewer)", Target{Tool: "Task"}, false, true},
		{"Task(reviewer)", Target{Tool: "Agent", Agent: "reviewer"}, true, true},
		{"Agent(reviewer)", Target{Tool: "Task", Agent: "critic"}, false, false},
		{"Skill(pdf)", Target{Tool: "Skill", Agent: "pdf"}, true, true},
		{"Bash(git *)", Target{Tool: "Monitor", Command: "git log"}, true, true},
		{"Bash", Target{Tool: "Monitor", Command: "git log"}, true, true},
		{"KillShell", Target{Tool: "TaskStop"}, true, true},
		{"New(x)", Target{Tool: "New"}, false, true},
		{"New", Target{Tool: "New"}, true, true},
	} {
		r := rules(t, test.rule)[0]
		test.target.Dir = "/w"
		if _, got := Allowed([]Rule{r}, test.target); got != test.allows {
			t.Errorf("%s allows %+v: %v", test.rule, test.target, got)
		}
		if got := r.Stops(test.target); got != test.stops {
			t.Errorf("%s stops %+v: %v", test.rule, test.target, got)
		}
	}
	for _, bad := range []string{"", "(x)", "Bash(git *", "Bash, Edit", "Bash)", "mcp__s__t(x)", "WebFetch(example.com)", "Edit([)", "Edit(../x)", "a b", "[", "Bash(\x00)"} {
		if _, err := ParseRule(bad); err == nil || !strings.Contains(err.Error(), "is no rule") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A rule is written as it is read, and means the same.
func FuzzParseRule(f *testing.F) {
	for _, seed := range []string{"Read", "Bash(git *)", "Bash(git:*)", "Edit(src/**)", "Edit(//etc/**)", "WebFetch(domain:example.com)", "mcp__s__t", "mcp__*", "*", "Bash(*)",
		"Bash()", "Edit(~/x)", "Read(\\[a)", " Bash ( x ) ", "Edit(a//b)"} {
		f.Add(seed, "git status", "/w/src/a")
	}
	f.Fuzz(func(t *testing.T, text, command, name string) {
		r, err := ParseRule(text)
		if err != nil {
			if r != (Rule{}) {
				t.Errorf("%q is an error and %+v", text, r)
			}
			return
		}
		again, err := ParseRule(r.String())
		if err != nil || again != r {
			t.Errorf("%q is %+v, and written as %q, %+v, %v", text, r, r.String(), again, err)
		}
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var read Rule
		if err := json.Unmarshal(raw, &read); err != nil && strings.ToValidUTF8(text, "") == text {
			t.Errorf("%s cannot be read: %v", raw, err)
		}
		// What a rule allows, it also stops.
		for _, target := range []Target{
			{Tool: r.Tool, Command: command, Path: "/w", Host: name, Agent: name, Dir: "/w"},
			{Tool: "Bash", Command: command, Dir: "/w"},
			{Tool: "Write", Path: slashed("/" + name), Dir: "/w"},
		} {
			if _, ok := Allowed([]Rule{r}, target); ok && !r.Stops(target) {
				t.Errorf("%v allows %+v, but as a rule that denies does not stop it", r, target)
			}
		}
	})
}

// Comparing commands with patterns is what a simple backtracking says it is.
func TestCommandPatterns(t *testing.T) {
	var slow func(pattern, text string) bool
	slow = func(pattern, text string) bool {
		switch {
		case pattern == "":
			return text == ""
		case pattern[0] == '*':
			return slow(pattern[1:], text) || text != "" && slow(pattern, text[1:])
		}
		return text != "" && text[0] == pattern[0] && slow(pattern[1:], text[1:])
	}
	alphabet := []byte("ab*")
	if err := quick.Check(func(p, c []byte) bool {
		for i := range p {
			p[i] = alphabet[p[i]%3]
		}
		for i := range c {
			c[i] = alphabet[c[i]%2]
		}
		p, c = p[:min(len(p), 8)], c[:min(len(c), 10)]
		return commandFits(string(p), string(c)) == slow(string(p), string(c))
	}, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
}
