package permission

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// some draws a few of the values, or nil.
func some[T any](t *rapid.T, label string, from ...T) []T {
	return rapid.SliceOfN(rapid.SampledFrom(from), 0, 3).Draw(t, label)
}

func orNil[T any](t *rapid.T, label string, list []T) []T {
	if rapid.Bool().Draw(t, label+" is nil") {
		return nil
	}
	return list
}

func drawRules(t *rapid.T, label string) []Rule {
	return some(t, label,
		Rule{"Bash", ""}, Rule{"Bash", "git *"}, Rule{"Bash", "rm *"}, Rule{"Bash", "ls:*"}, Rule{"Read", ""}, Rule{"Read", "src/**"}, Rule{"Edit", "src/**"},
		Rule{"Edit", "//w/**"}, Rule{"Write", ""}, Rule{"Edit", "*.go"}, Rule{"WebFetch", "domain:a.org"}, Rule{"WebFetch", ""}, Rule{"WebSearch", ""},
		Rule{"mcp__s", ""}, Rule{"mcp__s__t", ""}, Rule{"mcp__*", ""}, Rule{"Task", ""}, Rule{"Agent", "critic"}, Rule{"Workflow", ""}, Rule{"*", ""})
}

func drawGrant(t *rapid.T) Grant {
	return Grant{
		Mode:  rapid.SampledFrom(append(Modes(), "", "nonsense")).Draw(t, "mode"),
		Allow: drawRules(t, "allow"),
	}
}

func drawPolicy(t *rapid.T, label string) Policy {
	folders := []string{"/", "/w", "/w/src", "/w/src/a", "/w/docs", "/x", "/w/", "w", "/w/../x", "/wide"}
	levels := rapid.SampledFrom([]Level{No, Limited, Yes, Yes})
	p := Policy{
		Role:  rapid.SampledFrom([]string{"", "critic", "implementer", "critic and implementer"}).Draw(t, label+" role"),
		Read:  some(t, "read", folders...),
		Write: some(t, "write", folders...),
		Bash:  levels.Draw(t, "bash"),
		Git:   levels.Draw(t, "git"),
		Web:   rapid.Bool().Draw(t, "web"),
		Hosts: orNil(t, "hosts", some(t, "hosts", "a.org", "*.a.org", "b.a.org", "*.b.a.org", "A.org", "c.net")),
		Tools: orNil(t, "tools", some(t, "tools", "Bash", "Monitor", "Read", "Edit", "Write", "WebFetch", "Task", "Agent", "mcp__s", "mcp__s__*", "mcp__s__t", "mcp__s__u", "TodoWrite")),
		Spawn: rapid.Bool().Draw(t, "spawn"),
		Deny:  drawRules(t, "deny"),
		Ask:   drawRules(t, "ask"),
		Grant: drawGrant(t),
	}
	if rapid.IntRange(0, 2).Draw(t, "often") > 0 { // or hardly anything is allowed
		p.Deny, p.Ask = nil, nil
	}
	for range rapid.IntRange(0, 2).Draw(t, "also") {
		p.Also = append(p.Also, drawGrant(t))
	}
	return p
}

func drawCall(t *rapid.T) Call {
	tool := rapid.SampledFrom([]string{"Bash", "Monitor", "PowerShell", "Read", "Grep", "Glob", "LS", "Edit", "Write", "MultiEdit", "NotebookEdit", "WebFetch",
		"WebSearch", "Task", "Agent", "TodoWrite", "Workflow", "Skill", "mcp__s__t", "mcp__s__u", "mcp__o__t"}).Draw(t, "tool")
	path := rapid.SampledFrom([]string{"a.go", "src/a.go", "/w/src/a/b", "/x/y", "../x", "/w", ".", "/etc/passwd", "~/x", "src/../..", "/wider"}).Draw(t, "path")
	in := map[string]any{
		"file_path": path, "notebook_path": path, "path": path,
		"pattern": rapid.SampledFrom([]string{"*.go", "/x/*", "../*", "src/**"}).Draw(t, "pattern"),
		"command": rapid.SampledFrom([]string{"ls", "ls src", "ls /x", "cat a.go", "git status", "git commit -m x", "git push", "rm x", "ls && rm x", "git log | head",
			"ls && git commit", "cat $X", "git -C /x commit", "make", "git status && make", "ls; git log"}).Draw(t, "command"),
		"url": rapid.SampledFrom([]string{"https://a.org/", "http://b.a.org", "https://x.b.a.org", "https://c.net", "ftp://a.org", "x"}).Draw(t, "url"),
	}
	if rapid.Bool().Draw(t, "typed") {
		in["subagent_type"] = "critic"
	}
	if rapid.Bool().Draw(t, "bounded") {
		in["allowed_domains"] = []string{"b.a.org"}
	}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return Call{Tool: tool, Input: raw, Dir: rapid.SampledFrom([]string{"/w", "/w/src", "/x"}).Draw(t, "dir")}
}

// same tells whether two policies answer some calls alike, and are the same.
func same(t *rapid.T, law string, a, b Policy) {
	t.Helper()
	if !reflect.DeepEqual(a, b) {
		t.Fatalf("%s:\n%+v\n%+v", law, a, b)
	}
	for range 5 {
		c := drawCall(t)
		if x, y := a.Decide(c), b.Decide(c); x != y {
			t.Fatalf("%s: %s %s: %+v and %+v", law, c.Tool, c.Input, x, y)
		}
	}
}

// A child never gets more than its parent, nor more than it asks for.
func TestNarrowIsNeverWider(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawPolicy(t, "a"), drawPolicy(t, "b")
		n := Narrow(a, b)
		for range 20 {
			c := drawCall(t)
			if got, x, y := n.Decide(c), a.Decide(c), b.Decide(c); got.Verdict > min(x.Verdict, y.Verdict) {
				t.Fatalf("%s %s in %s: %+v\nof %+v\nand %+v", c.Tool, c.Input, c.Dir, got, x, y)
			}
		}
		for _, tool := range n.Offer(nil) {
			if !slices.Contains(a.Offer(nil), tool) || !slices.Contains(b.Offer(nil), tool) {
				t.Fatalf("%s is offered", tool)
			}
		}
	})
}

// Narrow is a meet: it does not matter who is whose parent, in which order, and
// how often.
func TestNarrowIsAMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawPolicy(t, "a"), drawPolicy(t, "b"), drawPolicy(t, "c")
		same(t, "commutative", Narrow(a, b), Narrow(b, a))
		same(t, "associative", Narrow(a, Narrow(b, c)), Narrow(Narrow(a, b), c))
		n := Narrow(a, a)
		same(t, "idempotent, when normal", Narrow(n, n), n)
		same(t, "absorbing", Narrow(n, Narrow(a, b)), Narrow(a, b))
		for range 10 {
			c := drawCall(t)
			if x, y := n.Decide(c), a.Decide(c); x.Verdict != y.Verdict {
				t.Fatalf("idempotent: %s %s: %+v and %+v", c.Tool, c.Input, x, y)
			}
		}
	})
}

// Narrow takes away no more than it must: where neither asks, what both allow is
// allowed.
func TestNarrowKeepsWhatBothAllow(t *testing.T) {
	allowed := 0
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawPolicy(t, "a"), drawPolicy(t, "b")
		n := Narrow(a, b)
		for range 120 {
			c := drawCall(t)
			if a.Decide(c).Verdict != Allow || b.Decide(c).Verdict != Allow {
				continue
			}
			allowed++
			if got := n.Decide(c); got.Verdict != Allow && !tooWide(c) {
				t.Fatalf("%s %s in %s: %+v\n%+v\n%+v\n%+v", c.Tool, c.Input, c.Dir, got, a, b, n)
			}
		}
	})
	if allowed < 10 { // it is 100 to 300
		t.Errorf("both allowed only %d calls", allowed)
	}
}

// tooWide tells calls about which policies of different extent may both say yes
// for different reasons, none of which holds for their meet: a command line that
// one allows because it only reads where that may read, the other by a rule.
func tooWide(c Call) bool { return kindOf(c.Tool) == shell }

func TestNarrowOfRoles(t *testing.T) {
	implementer, _ := ForRole("implementer", place)
	monitor, _ := ForRole("monitor", place)
	n := Narrow(implementer, monitor)
	if n.Role != "implementer and monitor" || n.Read != nil || n.Write != nil || n.Bash != Limited || n.Git != No || n.Web || n.Spawn {
		t.Errorf("a monitor below an implementer may %+v", n)
	}
	if got := n.Decide(in(bash("make"))); got.Verdict != Deny || got.Rule != "role implementer and monitor: bash limited" {
		t.Errorf("it decides %+v", got)
	}
	// A child's rules that allow count only within its parent's.
	parent := Policy{Read: []string{"/w"}, Bash: Yes, Grant: Grant{Mode: ModeDefault, Allow: rules(t, "Bash(git *)")}}
	child := Policy{Read: []string{"/"}, Bash: Yes, Git: Yes, Grant: Grant{Mode: ModeBypass}}
	n = Narrow(parent, child)
	for command, want := range map[string]Verdict{"git log --unknown": Deny, "git log": Allow, "make": Ask, "cat /etc/passwd": Ask, "cat a": Allow} {
		if got := n.Decide(bash(command)); got.Verdict != want {
			t.Errorf("%s: %+v, want %v", command, got, want)
		}
	}
	// What a parent denies in its folder stays denied for a child in another.
	parent = Policy{Read: []string{"/w"}, Deny: rules(t, "Read(secret/**)")}
	n = Narrow(parent.At("/w"), Policy{Read: []string{"/w"}})
	if got := n.Decide(Call{Tool: "Read", Input: json.RawMessage(`{"file_path":"a"}`), Dir: "/w/secret"}); got.Verdict != Deny {
		t.Errorf("in the secret folder: %+v", got)
	}
	// Nothing in common is nothing, not everything.
	n = Narrow(Policy{Tools: []string{"Read"}, Read: []string{"/"}}, Policy{Tools: []string{"TodoWrite"}, Read: []string{"/"}})
	if n.Tools == nil || n.Decide(call("Read", "file_path", "a")).Verdict != Deny || n.Decide(call("TodoWrite")).Verdict != Deny {
		t.Errorf("without a tool in common: %+v", n)
	}
}
