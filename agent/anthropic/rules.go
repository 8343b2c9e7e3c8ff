package anthropic

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor/agent/anthropic/tools"
	"github.com/dfaf701a/nestor/claude"
)

// rule is a permission rule in Claude Code's syntax: a tool, such as Bash or
// mcp__server, and for some tools which calls of it: Bash(git *), Edit(src/**),
// WebFetch(domain:example.com).
type rule struct {
	tool    string
	content string // empty means every call
}

func parseRule(text string) (rule, error) {
	tool, content, some := strings.Cut(strings.TrimSpace(text), "(")
	content, closed := strings.CutSuffix(content, ")")
	tool = strings.TrimSpace(tool)
	if tool == "" || some && !closed || strings.ContainsAny(tool, " ,)") {
		return rule{}, fmt.Errorf("%q is no rule about tools: write one as Read, Bash(git *), Edit(src/**) or mcp__server__tool", text)
	}
	if content == "*" {
		content = ""
	}
	return rule{tool, content}, nil
}

func ruleOf(r claude.PermissionRule) rule { return rule{r.Tool, r.Content} }

// kin are tools that the rules of another are for too.
var kin = map[string][]string{
	"Edit": {"Write", "MultiEdit", "NotebookEdit"},
	"Read": {"Glob", "Grep", "LS", "NotebookRead"},
}

// names tells whether the rule is about the tool.
func (r rule) names(tool string) bool {
	if r.tool == tool || slices.Contains(kin[r.tool], tool) && r.content != "" {
		return true
	}
	if !strings.HasPrefix(r.tool, "mcp__") {
		return false
	}
	server := strings.TrimSuffix(strings.TrimSuffix(r.tool, "*"), "__")
	name, ok := strings.CutPrefix(server, "mcp__")
	return ok && name != "" && !strings.Contains(name, "__") && strings.HasPrefix(tool, server+"__")
}

// allows tells whether the rule, as one that allows, is for the call. What it
// does not understand it is not for.
func (r rule) allows(tool string, input json.RawMessage, a tools.Access, dir string) bool {
	if !r.names(tool) {
		return false
	}
	switch {
	case r.content == "":
		return true
	case tool == "Bash":
		command, ok := commandOf(input)
		return ok && simple(command) && commandFits(r.content, command)
	case strings.HasPrefix(r.content, "domain:"):
		return a.Host != "" && hostFits(strings.TrimPrefix(r.content, "domain:"), a.Host)
	case a.Path != "":
		return (!a.Outside || strings.HasPrefix(r.content, "//")) && pathFits(r.content, a.Path, dir)
	}
	return false
}

// stops tells whether the rule, as one that denies or asks, is for the call: for
// any part of it, and for all of it if nobody can tell.
func (r rule) stops(tool string, input json.RawMessage, a tools.Access, dir string) bool {
	if !r.names(tool) {
		return false
	}
	switch {
	case r.content == "":
		return true
	case tool == "Bash":
		command, ok := commandOf(input)
		return !ok || slices.ContainsFunc(parts(command), func(part string) bool { return commandFits(r.content, part) })
	case strings.HasPrefix(r.content, "domain:"):
		return a.Host == "" || hostFits(strings.TrimPrefix(r.content, "domain:"), a.Host)
	}
	return a.Path == "" || pathFits(r.content, a.Path, dir)
}

func commandOf(input json.RawMessage) (string, bool) {
	var bash struct {
		Command *string `json:"command"`
	}
	if json.Unmarshal(input, &bash) != nil || bash.Command == nil {
		return "", false
	}
	return strings.TrimSpace(*bash.Command), true
}

// commandFits tells whether a command is one of the pattern: the very command, a
// prefix as in "git:*", or with * for anything, as in "git * main". A * at the
// end behind a space also stands for nothing.
func commandFits(pattern, command string) bool {
	if prefix, ok := strings.CutSuffix(pattern, ":*"); ok {
		return command == prefix || strings.HasPrefix(command, prefix+" ")
	}
	if bare, ok := strings.CutSuffix(pattern, " *"); ok && command == bare {
		return true
	}
	expr := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`)
	fits, err := regexp.MatchString(`(?s)^(?:`+expr+`)$`, command)
	return err == nil && fits
}

// hostFits tells whether the host is the domain or, for "*.domain", below it.
func hostFits(domain, host string) bool {
	domain, host = strings.ToLower(domain), strings.ToLower(host)
	if below, ok := strings.CutPrefix(domain, "*."); ok {
		return strings.HasSuffix(host, "."+below)
	}
	return host == domain
}

// pathFits tells whether a path fits a pattern as .gitignore has them: relative
// to dir, or absolute behind //. A pattern without a slash fits at any depth,
// and one of a folder what is in it.
func pathFits(pattern, path, dir string) bool {
	path = filepath.ToSlash(path)
	if absolute, ok := strings.CutPrefix(pattern, "//"); ok {
		return globFits(strings.Split("/"+absolute, "/"), strings.Split(path, "/"))
	}
	if strings.HasPrefix(pattern, "~") {
		return false // whose home?
	}
	rel, err := filepath.Rel(dir, filepath.FromSlash(path))
	if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return false
	}
	pattern = strings.TrimPrefix(pattern, "./")
	if !strings.Contains(strings.TrimSuffix(pattern, "/"), "/") {
		pattern = "**/" + pattern
	}
	pattern = strings.TrimSuffix(strings.TrimPrefix(pattern, "/"), "/")
	return globFits(strings.Split(pattern, "/"), strings.Split(filepath.ToSlash(rel), "/"))
}

// globFits compares segment by segment: ** stands for any number of them.
func globFits(pattern, path []string) bool {
	for i, segment := range pattern {
		if segment == "**" {
			for skip := 0; skip <= len(path)-i; skip++ {
				if globFits(pattern[i+1:], path[i+skip:]) {
					return true
				}
			}
			return false
		}
		if i >= len(path) {
			return false
		}
		if ok, err := filepath.Match(segment, path[i]); err != nil || !ok {
			return false
		}
	}
	return true // what is left lies below
}
