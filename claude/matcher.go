package claude

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
)

// Matcher says which tools, or which sources, triggers and names, a hook is
// for. The zero value is for all. Make others with [Tool], [MCPServerTools],
// [Exactly] and [Pattern]; one that could match nothing is refused when the
// session starts.
//
// The CLI compares the tool's name for PreToolUse, PostToolUse,
// PostToolUseFailure, PermissionRequest and PermissionDenied; the source for
// SessionStart and ConfigChange; the trigger for Setup, PreCompact and
// PostCompact; the type for Notification; the reason for SessionEnd and
// InstructionsLoaded; the agent's type for SubagentStart and SubagentStop; the
// server's name for Elicitation and ElicitationResult; the file's base name
// for FileChanged; the error for StopFailure; and the command's name for
// UserPromptExpansion.
type Matcher struct {
	pattern string
	expr    func() (*regexp.Regexp, error) // the pattern compiled, once; nil for a list of names
	err     error
}

// expression matches what the regular expression finds.
func expression(expr string) Matcher {
	return Matcher{pattern: expr, expr: sync.OnceValues(func() (*regexp.Regexp, error) { return regexp.Compile(expr) })}
}

// listed holds what a matcher may be made of to be read as a list of exact
// names; with any other character in it the CLI reads it as an unanchored
// JavaScript regular expression. Measured on 2.1.289.
var listed = pattern(`^[A-Za-z0-9_\-, |]*$`)

// Tool matches the tools with these names, such as "Bash" or
// "mcp__github__create_issue".
func Tool(names ...string) Matcher {
	for _, name := range names {
		server, ok := strings.CutPrefix(name, "mcp__")
		if ok && !strings.Contains(server, "__") {
			return Matcher{err: fmt.Errorf("%q is a server and no tool: use MCPServerTools(%q)", name, server)}
		}
	}
	return Exactly(names...)
}

// Exactly matches these names, sources or triggers, letter by letter.
func Exactly(values ...string) Matcher {
	if len(values) == 0 {
		return Matcher{err: errors.New("no name is given: use the zero Matcher to match everything")}
	}
	plain := true
	for _, v := range values {
		if v == "" || v == "*" || strings.TrimSpace(v) != v {
			return Matcher{err: fmt.Errorf("%q is no name: use the zero Matcher to match everything", v)}
		}
		plain = plain && listed().MatchString(v) && !strings.ContainsAny(v, " ,|")
	}
	if plain {
		return Matcher{pattern: strings.Join(values, "|")}
	}
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = regexp.QuoteMeta(v)
	}
	return expression("^(?:" + strings.Join(quoted, "|") + ")$")
}

// outsideToolName is what the CLI replaces by "_" in the names of MCP tools.
var outsideToolName = pattern(`[^a-zA-Z0-9_-]`)

// MCPServerTools matches every tool of these MCP servers, named as in
// Options.MCPServers. The server of a plugin is "plugin_<plugin>_<server>".
func MCPServerTools(servers ...string) Matcher {
	if len(servers) == 0 {
		return Matcher{err: errors.New("no server is given: use Pattern(`^mcp__`) to match the tools of all")}
	}
	patterns := make([]string, len(servers))
	for i, s := range servers {
		if s == "" {
			return Matcher{err: errors.New("a server has an empty name")}
		}
		patterns[i] = "^mcp__" + outsideToolName().ReplaceAllString(s, "_") + "__.*"
	}
	return expression(strings.Join(patterns, "|"))
}

// Pattern matches what the JavaScript regular expression finds anywhere in the
// name: write ^ and $ to tie it down.
func Pattern(expr string) Matcher {
	if expr == "" || expr == "*" {
		return Matcher{err: fmt.Errorf("pattern %q matches everything: use the zero Matcher", expr)}
	}
	if listed().MatchString(expr) {
		return Matcher{err: fmt.Errorf("the CLI reads pattern %q as an exact name: use Tool or Exactly, or write %q", expr, expr+".*")}
	}
	if _, err := syntax.Parse(expr, syntax.Perl); err != nil && !onlyJavaScript(err) {
		return Matcher{err: fmt.Errorf("pattern %q: %w", expr, err)}
	}
	return expression(expr)
}

// onlyJavaScript tells whether err may be about what JavaScript knows and Go
// does not: look-around, back-references, other escapes.
func onlyJavaScript(err error) bool {
	e, ok := errors.AsType[*syntax.Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case syntax.ErrInvalidPerlOp, syntax.ErrInvalidEscape, syntax.ErrInvalidRepeatSize, syntax.ErrInvalidNamedCapture, syntax.ErrInvalidCharRange:
		return true
	}
	return false
}

// String returns the matcher as the CLI reads it.
func (m Matcher) String() string {
	if m.err != nil {
		return "invalid matcher: " + m.err.Error()
	}
	return m.pattern
}
