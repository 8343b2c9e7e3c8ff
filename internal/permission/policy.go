// Package permission decides what a run may do: which tools it may call, which
// files it may read and change, which commands it may run, which hosts it may
// reach.
//
// A [Policy] comes from the table of roles ([ForRole], [Table.For]), from rules
// in Claude Code's syntax ([ParseRule]), or from both. [Policy.Decide] answers a
// tool call, and names what made the decision. [Narrow] is what a child has: the
// meet of its parent's policy and its own, never more than either.
//
// Nothing here touches a file: paths are compared as they are written, without
// following links, and a command line is judged by its text. So what is decided
// here tells an agent early and clearly what it may not do; that it cannot is up
// to the operating system, which is given the same folders.
//
// All of it may be called from any goroutine.
package permission

import (
	"fmt"
	"strings"
)

// Policy is what a run may do. The zero value may do nothing but think: no file,
// no command, no host, no agent, and no tool that a rule does not name.
//
// Read to Spawn bound it: what they do not hold is denied, and no rule and no
// mode allows it. Within them rules and the mode decide.
type Policy struct {
	Role  string   `json:"role,omitempty"`  // where it came from, for people
	Read  []string `json:"read,omitempty"`  // absolute folders, or files, whose content it may read; "/" means all
	Write []string `json:"write,omitempty"` // those that it may change
	Bash  Level    `json:"bash"`            // Limited: commands that only read, one at a time
	Git   Level    `json:"git"`             // commands of git that change something, if Bash allows any; Limited: this workspace's repository
	Web   bool     `json:"web"`
	Hosts []string `json:"hosts,omitzero"` // example.com, *.example.com; nil means any, if Web
	Tools []string `json:"tools,omitzero"` // names that exist, mcp__server for all of a server; nil means all
	Spawn bool     `json:"spawn"`          // it may start agents: Task and Agent

	Deny []Rule `json:"deny,omitempty"` // these win over all others
	Ask  []Rule `json:"ask,omitempty"`  // then these: somebody is asked, whatever the mode allows
	Grant
	Also []Grant `json:"also,omitempty"` // what is allowed must be allowed by each of these too; Narrow makes them
}

// Grant is what allows, within a policy's bounds.
type Grant struct {
	// Mode is Claude Code's permission mode, for what no rule decides. Empty
	// means dontAsk: what is not allowed is denied.
	Mode  string `json:"mode,omitempty"`
	Allow []Rule `json:"allow,omitempty"`
}

// Claude Code's permission modes, from those that allow most to those that allow
// least.
const (
	ModeBypass      = "bypassPermissions" // everything
	ModeAcceptEdits = "acceptEdits"       // edits; it asks about the rest
	ModeDefault     = "default"           // reading; it asks about the rest
	ModeAuto        = "auto"              // as default: who classifies calls is asked, not this package
	ModePlan        = "plan"              // reading, and nothing else, whatever is allowed
	ModeDontAsk     = "dontAsk"           // reading and what rules allow; the rest is denied
)

// Modes returns the modes that there are.
func Modes() []string {
	return []string{ModeBypass, ModeAcceptEdits, ModeDefault, ModeAuto, ModePlan, ModeDontAsk}
}

// Level is how much of something a run may do.
type Level int8

const (
	No      Level = iota
	Limited       // the part of it that is safe: see Policy
	Yes
)

// Workspace is the level of git in the workspace alone.
const Workspace = Limited

func (l Level) String() string {
	switch l {
	case No:
		return "no"
	case Limited:
		return "limited"
	case Yes:
		return "yes"
	}
	return fmt.Sprintf("Level(%d)", int8(l))
}

// MarshalText writes no, limited or yes.
func (l Level) MarshalText() ([]byte, error) {
	if l < No || l > Yes {
		return nil, fmt.Errorf("%v is no level: it is no, limited or yes", l)
	}
	return []byte(l.String()), nil
}

// UnmarshalText reads no, limited, workspace (which is the same) or yes.
func (l *Level) UnmarshalText(text []byte) error {
	switch string(text) {
	case "no":
		*l = No
	case "limited", "workspace":
		*l = Limited
	case "yes":
		*l = Yes
	default:
		return fmt.Errorf("%q is no level: write no, limited or yes", clip(string(text)))
	}
	return nil
}

// Verdict is the answer to a call. The zero value is Deny; a smaller one is
// stricter.
type Verdict int8

const (
	Deny Verdict = iota
	Ask          // a person decides
	Allow
)

func (v Verdict) String() string {
	switch v {
	case Deny:
		return "deny"
	case Ask:
		return "ask"
	case Allow:
		return "allow"
	}
	return fmt.Sprintf("Verdict(%d)", int8(v))
}

// MarshalText writes allow, ask or deny.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (v *Verdict) UnmarshalText(text []byte) error {
	for _, known := range []Verdict{Deny, Ask, Allow} {
		if known.String() == string(text) {
			*v = known
			return nil
		}
	}
	return fmt.Errorf("%q is no verdict: write allow, ask or deny", clip(string(text)))
}

// Decision is the answer to a call, with all that an audit wants to know of it.
type Decision struct {
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"` // a sentence, which an agent may be told
	Rule    string  `json:"rule"`   // what made it: "role critic: bash no", "deny Bash(rm *)", "mode acceptEdits"
}

// bound says what a bound of the policy is called in decisions.
func (p Policy) bound(format string, args ...any) string {
	who := "policy"
	if p.Role != "" {
		who = "role " + p.Role
	}
	return who + ": " + fmt.Sprintf(format, args...)
}

// clip returns the beginning of text, for errors and reasons.
func clip(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
