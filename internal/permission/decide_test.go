package permission

import (
	"encoding/json"
	"strings"
	"testing"
)

// Nothing but thinking.
func TestZeroPolicy(t *testing.T) {
	for _, c := range []Call{
		call("Read", "file_path", "/w/a"), call("Glob", "pattern", "*"), call("Write", "file_path", "/w/a"), bash("true"), call("WebFetch", "url", "https://a.org"),
		call("WebSearch", "query", "x"), call("Task"), call("mcp__s__t"), call("Workflow"), call("PowerShell", "command", "x"), call(""), {Tool: "Read"},
	} {
		if got := (Policy{}).Decide(c); got.Verdict != Deny || got.Rule == "" || !strings.HasSuffix(got.Reason, ".") {
			t.Errorf("%s %s: %+v", c.Tool, c.Input, got)
		}
	}
	if got := (Policy{}).Decide(call("TodoWrite")); got.Verdict != Allow {
		t.Errorf("thinking: %+v", got)
	}
}

// Rules and modes, in Claude Code's order.
func TestOrderOfDecisions(t *testing.T) {
	wide := Policy{Read: []string{"/"}, Write: []string{"/w"}, Bash: Yes, Git: Yes, Web: true, Spawn: true}
	read, write, cmd, tool := call("Read", "file_path", "a"), call("Write", "file_path", "a"), bash("make"), call("mcp__s__t")
	for _, test := range []struct {
		name             string
		mode             string
		deny, ask, allow string
		call             Call
		want             Verdict
		rule             string
	}{
		{"reading is fine", ModeDefault, "", "", "", read, Allow, "policy: read /"},
		{"reading is fine in plan mode", ModePlan, "", "", "", read, Allow, "policy: read /"},
		{"reading is fine where nobody is asked", ModeDontAsk, "", "", "", read, Allow, "policy: read /"},
		{"edits are asked about", ModeDefault, "", "", "", write, Ask, "mode default"},
		{"edits are accepted", ModeAcceptEdits, "", "", "", write, Allow, "mode acceptEdits"},
		{"commands are not", ModeAcceptEdits, "", "", "", cmd, Ask, "mode acceptEdits"},
		{"those that only read are", ModeDefault, "", "", "", bash("ls && git log | head -5"), Allow, "policy: bash yes"},
		{"those that read elsewhere are not", ModeDefault, "", "", "", bash("ls > x"), Ask, "mode default"},
		{"bypass allows", ModeBypass, "", "", "", cmd, Allow, "mode bypassPermissions"},
		{"bypass allows no tool that nobody knows", ModeBypass, "", "", "", call("Workflow"), Ask, "mode bypassPermissions"},
		{"a rule does", ModeDefault, "", "", "Workflow", call("Workflow"), Allow, "allow Workflow"},
		{"plan mode changes nothing", ModePlan, "", "", "Write", write, Deny, "mode plan"},
		{"dontAsk denies", ModeDontAsk, "", "", "", cmd, Deny, "mode dontAsk"},
		{"dontAsk knows rules", ModeDontAsk, "", "", "Bash(make)", cmd, Allow, "allow Bash(make)"},
		{"a mode that nobody knows is as strict", "yolo", "", "", "", cmd, Deny, "mode dontAsk"},
		{"a rule allows", ModeDefault, "", "", "mcp__s", tool, Allow, "allow mcp__s"},
		{"a rule denies what the mode allows", ModeBypass, "Bash(make *)", "", "Bash", cmd, Deny, "deny Bash(make *)"},
		{"a rule denies reading", ModeBypass, "Read(a)", "", "Read", read, Deny, "deny Read(a)"},
		{"a rule asks about what is allowed", ModeBypass, "", "Bash(make)", "Bash", cmd, Ask, "ask Bash(make)"},
		{"and about reading", ModeBypass, "", "Read", "", read, Ask, "ask Read"},
		{"where nobody is asked, it denies", ModeDontAsk, "", "Bash(make)", "Bash", cmd, Deny, "ask Bash(make)"},
		{"one who denies wins over one who asks", ModeBypass, "Bash(make)", "Bash(make)", "", cmd, Deny, "deny Bash(make)"},
		{"parts that only read need no rule", ModeDontAsk, "", "", "Bash(make)", bash("ls && make 2>&1 | tail -5"), Allow, "allow Bash(make)"},
		{"no rule allows what the bounds do not hold", ModeBypass, "", "", "Edit(//**)", call("Write", "file_path", "/etc/x"), Deny, "policy: write /w"},
		{"agents are asked about", ModeDefault, "", "", "", call("Task", "subagent_type", "critic"), Ask, "mode default"},
		{"a rule names one", ModeDefault, "", "", "Agent(critic)", call("Task", "subagent_type", "critic"), Allow, "allow Agent(critic)"},
	} {
		p := wide
		p.Mode = test.mode
		for text, to := range map[string]*[]Rule{test.deny: &p.Deny, test.ask: &p.Ask, test.allow: &p.Allow} {
			if text != "" {
				*to = append(*to, rules(t, text)...)
			}
		}
		if test.deny == test.ask && test.deny != "" {
			p.Deny, p.Ask = rules(t, test.deny), rules(t, test.ask)
		}
		if got := p.Decide(test.call); got.Verdict != test.want || got.Rule != test.rule || got.Reason == "" {
			t.Errorf("%s: %+v, want %v by %q", test.name, got, test.want, test.rule)
		}
	}
}

// Where calls about files lead, as it is written.
func TestPathsOfCalls(t *testing.T) {
	p := Policy{Read: []string{"/w", "/notes/a.txt"}, Write: []string{"/w/src"}, Grant: Grant{Mode: ModeAcceptEdits}}
	for _, test := range []struct {
		tool, input string
		want        Verdict
	}{
		{"Read", `{"file_path":"/w/a"}`, Allow},
		{"Read", `{"file_path":"a"}`, Allow},
		{"Read", `{"file_path":"/notes/a.txt"}`, Allow},
		{"Read", `{"file_path":"/notes/a.txt.bak"}`, Deny},
		{"Read", `{"file_path":"/w"}`, Allow},
		{"Read", `{"file_path":"/wide/a"}`, Deny},
		{"Read", `{"file_path":"/w/../etc/passwd"}`, Deny},
		{"Read", `{"file_path":"../w/a"}`, Allow},
		{"Read", `{"file_path":"../etc/passwd"}`, Deny},
		{"Read", `{"file_path":"//etc/passwd"}`, Deny},
		{"Read", `{"file_path":"~/a"}`, Deny},
		{"Read", `{"file_path":"/w/a\u0000/../../etc"}`, Deny},
		{"Read", `{"file_path":"/w/a\nb"}`, Deny},
		{"Read", `{"file_path":""}`, Deny},
		{"Read", `{}`, Deny},
		{"Read", `{"file_path":7}`, Deny},
		{"Read", `{"file_path":"/w/a","File_Path":"/etc/passwd"}`, Deny},
		{"Read", `{"file_path":"/w/a","file_path":"/w/b"}`, Deny},
		{"Read", `{"file_path":"/w/a","\u0066ile_path":"/etc/passwd"}`, Deny},
		{"Read", `{"file_path":"/w/a","file_\u017fpath":"/etc/passwd"}`, Allow}, // another name to everybody
		{"Read", `{"\u0066ile_path":"/etc/passwd"}`, Deny},
		{"Read", `{"file_path":"/w/a","path":"/etc/passwd"}`, Allow}, // not its path
		{"NotebookRead", `{"notebook_path":"/w/a.ipynb"}`, Allow},
		{"Glob", `{"pattern":"**/*.go"}`, Allow},
		{"Glob", `{"pattern":"*","path":"/etc"}`, Deny},
		{"Glob", `{"pattern":"/etc/*"}`, Deny},
		{"Glob", `{"pattern":"/w/src/*.go","path":"/etc"}`, Deny}, // as some read it
		{"Glob", `{"pattern":"../*"}`, Deny},
		{"Glob", `{"pattern":"*/../../etc/*"}`, Deny},
		{"Glob", `{"pattern":"{src,../../etc}/*"}`, Deny},
		{"Glob", `{"pattern":"{/etc,src}/*"}`, Deny},
		{"Glob", `{"pattern":"a..b/*"}`, Allow},
		{"Glob", `{"pattern":"~/*"}`, Deny},
		{"Grep", `{"pattern":"../x","path":"src"}`, Allow},
		{"Grep", `{"pattern":"x","path":"/"}`, Deny},
		{"LS", `{"path":"/w"}`, Allow},
		{"Write", `{"file_path":"/w/src/a"}`, Allow},
		{"Write", `{"file_path":"/w/a"}`, Deny},
		{"MultiEdit", `{"file_path":"src/a","edits":[]}`, Allow},
		{"NotebookEdit", `{"notebook_path":"src/a.ipynb"}`, Allow},
		{"NotebookEdit", `{"file_path":"src/a.ipynb"}`, Deny},
		{"Edit", `{"file_path":"src/../a"}`, Deny},
	} {
		if got := p.Decide(Call{Tool: test.tool, Input: json.RawMessage(test.input), Dir: "/w"}); got.Verdict != test.want {
			t.Errorf("%s %s: %+v, want %v", test.tool, test.input, got, test.want)
		}
	}
	if got := p.Decide(Call{Tool: "Read", Input: json.RawMessage(`{"file_path":"a"}`), Dir: "w"}); got.Verdict != Deny {
		t.Errorf("in a relative folder: %+v", got)
	}
}

// Tools that nobody here looks into have the names that they like.
func TestInputsOfOtherTools(t *testing.T) {
	p := Policy{Grant: Grant{Mode: ModeBypass}}
	for input, want := range map[string]Verdict{`{"Path":1,"URL":{},"x":1,"X":2}`: Allow, ``: Allow, `{"x":1,"x":2}`: Deny, `7`: Deny, `null`: Deny} {
		if got := p.Decide(Call{Tool: "mcp__s__t", Input: json.RawMessage(input), Dir: "/w"}); got.Verdict != want {
			t.Errorf("%s: %+v, want %v", input, got, want)
		}
	}
}

func TestHostsOfCalls(t *testing.T) {
	p := Policy{Web: true, Hosts: []string{"a.org", "*.b.org"}, Grant: Grant{Mode: ModeBypass}}
	for input, want := range map[string]Verdict{
		`{"url":"https://a.org/x"}`: Allow, `{"url":"https://A.org./x"}`: Allow, `{"url":"http://a.org:8080"}`: Allow, `{"url":"https://x.b.org"}`: Allow,
		`{"url":"https://b.org"}`: Deny, `{"url":"https://a.org.evil.net"}`: Deny, `{"url":"https://a.org@evil.net/"}`: Deny, `{"url":"https://evil.net#a.org"}`: Deny,
		`{"url":"https://evil.net\\@a.org/"}`: Deny, `{"url":"file:///etc/passwd"}`: Deny, `{"url":"a.org"}`: Deny, `{"url":""}`: Deny, `{}`: Deny,
		`{"url":"https://\uff41.org/"}`: Deny, `{"url":"https://a\u3002org/"}`: Deny, `{"url":"https://a.org%2f.evil.net/"}`: Deny,
		`{"url":"https://a.org","URL":"https://evil.net"}`: Deny,
	} {
		if got := p.Decide(Call{Tool: "WebFetch", Input: json.RawMessage(input), Dir: "/w"}); got.Verdict != want {
			t.Errorf("%s: %+v, want %v", input, got, want)
		}
	}
	for input, want := range map[string]Verdict{
		`{"query":"x"}`: Deny, `{"query":"x","allowed_domains":[]}`: Deny, `{"query":"x","allowed_domains":["a.org"]}`: Allow,
		`{"query":"x","allowed_domains":["a.org","evil.net"]}`: Deny, `{"query":"x","allowed_domains":"a.org"}`: Deny,
	} {
		if got := p.Decide(Call{Tool: "WebSearch", Input: json.RawMessage(input), Dir: "/w"}); got.Verdict != want {
			t.Errorf("%s: %+v, want %v", input, got, want)
		}
	}
}

// How much of git, in a shell that may do anything else.
func TestGitLevels(t *testing.T) {
	for command, want := range map[string][2]Verdict{ // no, workspace
		"git log":                              {Allow, Allow},
		"git diff > x.patch":                   {Allow, Allow},
		"cd src && git status && make":         {Allow, Allow},
		"echo 'git commit' > notes":            {Allow, Allow},
		"grep -r 'git push' .":                 {Allow, Allow},
		"git commit -m x":                      {Deny, Allow},
		"git add . && git commit -m 'a; b'":    {Deny, Allow},
		"ls; git checkout -b x":                {Deny, Allow},
		"/usr/bin/git commit":                  {Deny, Allow},
		"sh -c 'git commit'":                   {Deny, Allow},
		"echo $(git stash)":                    {Deny, Allow},
		"A=1 git commit":                       {Deny, Allow},
		"xargs git add":                        {Deny, Allow},
		"git -c user.name=x commit":            {Deny, Allow},
		"git -C src commit":                    {Deny, Allow},
		"git -C .. commit":                     {Deny, Deny},
		"git --git-dir=/x/.git commit":         {Deny, Deny},
		"git --git-dir /x/.git commit":         {Deny, Deny},
		"GIT_DIR=/x git commit":                {Deny, Deny},
		"export GIT_WORK_TREE=/x; git add .":   {Deny, Deny},
		"git push":                             {Deny, Deny},
		"git fetch && git pull":                {Deny, Deny},
		"git clone https://x.org/y":            {Deny, Deny},
		"git remote add x y":                   {Deny, Deny},
		"git config user.name x":               {Deny, Allow},
		"git config --global user.name x":      {Deny, Deny},
		"git worktree add /x":                  {Deny, Deny},
		"git submodule update":                 {Deny, Deny},
		"git filter-branch":                    {Deny, Deny},
		"git x":                                {Deny, Deny},
		"timeout 5 git push origin HEAD:other": {Deny, Deny},
	} {
		for i, level := range []Level{No, Workspace} {
			p := Policy{Role: "r", Read: []string{"/w"}, Write: []string{"/w"}, Bash: Yes, Git: level, Grant: Grant{Mode: ModeBypass}}
			got := p.Decide(bash(command))
			if got.Verdict != want[i] || got.Verdict == Deny && got.Rule != []string{"role r: git no", "role r: git workspace"}[i] {
				t.Errorf("%s with git %s: %+v, want %v", command, gitCell(level), got, want[i])
			}
		}
	}
}

// Whatever comes is answered, with a reason and a rule.
func FuzzDecide(f *testing.F) {
	for _, c := range []Call{call("Read", "file_path", "a"), bash("ls | rm x"), call("Glob", "pattern", "{a,b}/*"), call("WebFetch", "url", "https://a.org")} {
		f.Add(c.Tool, []byte(c.Input), "/w")
	}
	var policies []Policy
	for _, role := range (Table{}).Names() {
		p, err := ForRole(role, place)
		if err != nil {
			f.Fatal(err)
		}
		policies = append(policies, p)
	}
	f.Fuzz(func(t *testing.T, tool string, input []byte, dir string) {
		c := Call{Tool: tool, Input: input, Dir: dir}
		for _, p := range policies {
			d := p.Decide(c)
			if d.Reason == "" || d.Rule == "" || d.Verdict < Deny || d.Verdict > Allow {
				t.Errorf("%s: %+v", p.Role, d)
			}
			if d.Verdict == Allow && (Policy{}).Decide(c).Verdict == Allow && kindOf(tool) != inner {
				t.Errorf("who may do nothing may do %s %s", tool, input)
			}
		}
	})
}
