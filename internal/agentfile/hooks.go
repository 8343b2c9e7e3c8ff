package agentfile

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/yamltree"
)

// Hook is a command that is run when something happens in a run.
type Hook struct {
	Event   string `json:"event"`             // as Claude Code names it
	Matcher string `json:"matcher,omitempty"` // see Fits; empty means all
	If      string `json:"if,omitempty"`      // a rule about tools: only for calls that it is about; empty means all
	// Command is for a shell. With Args it is a program, and they are what it is
	// given.
	Command string        `json:"command"`
	Args    []string      `json:"args,omitzero"`
	Timeout time.Duration `json:"timeout,omitempty"` // zero means a minute
	Once    bool          `json:"once,omitempty"`    // it is run the first time alone
	Guards  bool          `json:"guards,omitempty"`  // if it fails, what it is asked about does not happen
}

// The events of hooks.
const (
	PreToolUse         = "PreToolUse"
	PostToolUse        = "PostToolUse"
	PostToolUseFailure = "PostToolUseFailure"
	UserPromptSubmit   = "UserPromptSubmit"
	SessionStart       = "SessionStart"
	SubagentStart      = "SubagentStart" // of a file it is the run itself that starts
	Stop               = "Stop"
	SubagentStop       = "SubagentStop" // likewise
)

var (
	// hookEvents are those whose hooks are run.
	hookEvents = []string{PreToolUse, PostToolUse, PostToolUseFailure, UserPromptSubmit, SessionStart, SubagentStart, Stop, SubagentStop}
	// otherEvents are those that Claude Code has besides, as of 2.1.325.
	otherEvents = []string{
		"PostToolBatch", "Notification", "UserPromptExpansion", "SessionEnd", "StopFailure", "PreCompact", "PostCompact", "PreModelSwitch",
		"PostModelSwitch", "PermissionRequest", "PermissionDenied", "Setup", "TeammateIdle", "TaskCreated", "TaskCompleted", "Elicitation",
		"ElicitationResult", "ConfigChange", "WorktreeCreate", "WorktreeRemove", "InstructionsLoaded", "CwdChanged", "FileChanged",
		"DirectoryAdded", "MessageDisplay",
	}
	// otherHooks are the types of hooks that Claude Code has besides commands.
	otherHooks = []string{"prompt", "agent", "http", "mcp_tool"}
)

const (
	maxHooks   = 100
	maxMatcher = 1000 // bytes
)

// matcherNames is what a matcher may be made of to be a list of names, as Claude
// Code reads it; any other one is a regular expression.
var matcherNames = regexp.MustCompile(`^[A-Za-z0-9_\-, |]*$`)

// Fits tells whether the hook is for a tool, or whatever its event is about. Its
// matcher is a list of names, as Edit|Write, or else a regular expression that is
// found anywhere in the name. One that cannot be read fits everything.
func (h Hook) Fits(subject string) bool {
	switch {
	case h.Matcher == "" || h.Matcher == "*":
		return true
	case matcherNames.MatchString(h.Matcher):
		names := strings.FieldsFunc(h.Matcher, func(c rune) bool { return c == '|' || c == ',' })
		return slices.ContainsFunc(names, func(name string) bool { return strings.TrimSpace(name) == subject })
	}
	expr, err := regexp.Compile(h.Matcher)
	return err != nil || expr.MatchString(subject)
}

// String returns the hook in one line, for people.
func (h Hook) String() string {
	what := h.Event
	if h.Matcher != "" && h.Matcher != "*" {
		what += " " + h.Matcher
	}
	if h.If != "" {
		what += " if " + h.If
	}
	if h.Args != nil {
		return what + ": " + words(append([]string{h.Command}, h.Args...))
	}
	return what + ": " + h.Command
}

// readHooks reads hooks as Claude Code has them: events, each with a list of
// matchers, each with a list of commands.
func readHooks(p *parser, f field) error {
	if f.value.Null() {
		return nil
	}
	fields, err := f.value.Fields()
	errs := []error{err}
	for _, event := range fields {
		line := event.Place.Line() + f.offset
		switch {
		case slices.Contains(hookEvents, event.Key):
		case slices.Contains(otherEvents, event.Key):
			p.warn(line, 1, "hooks of %s are not run here; those of these are: %s", event.Key, strings.Join(hookEvents, ", "))
			continue
		default:
			words := hookEvents
			if near := Nearest(event.Key, otherEvents); near != "" {
				words = otherEvents
			}
			errs = append(errs, noSuch(event.Place, event.Key, words))
			continue
		}
		if event.Value.Null() {
			continue
		}
		groups, err := event.Value.Items()
		errs = append(errs, err)
		for _, group := range groups {
			errs = append(errs, p.hookGroup(event.Key, group, f.offset))
		}
	}
	if len(p.d.Hooks) > maxHooks {
		errs = append(errs, f.place.Errorf("there are more than %d hooks", maxHooks))
	}
	return join(errs)
}

// hookGroup reads a matcher and what is run for it.
func (p *parser) hookGroup(event string, n *yamltree.Node, offset int) error {
	var list []*yamltree.Node
	h := Hook{Event: event}
	err := n.Each(map[string]func(*yamltree.Node) error{
		"matcher": func(n *yamltree.Node) error {
			if n.Null() {
				return nil
			}
			return yamltree.Into(&h.Matcher, (*yamltree.Node).Text)(n)
		},
		"hooks": yamltree.Into(&list, (*yamltree.Node).Items),
	})
	switch {
	case err != nil:
		return err
	case len(h.Matcher) > maxMatcher:
		return n.Errorf("the matcher has more than %d bytes", maxMatcher)
	case len(list) == 0:
		return n.Errorf("there is nothing to be run; want hooks: [{type: command, command: …}]")
	}
	if _, err := regexp.Compile(h.Matcher); err != nil && h.Matcher != "*" && !matcherNames.MatchString(h.Matcher) {
		p.warn(n.Line()+offset, 1, "the matcher %.60q cannot be read here, so that the hook is run for all: %v", h.Matcher, err)
	}
	var errs []error
	for _, item := range list {
		errs = append(errs, p.hook(h, item, offset))
	}
	return join(errs)
}

// hook reads one command.
func (p *parser) hook(h Hook, n *yamltree.Node, offset int) error {
	fields, err := n.Fields()
	if err != nil {
		return err
	}
	kind, seconds := "command", 0.0
	at := func(one yamltree.Field) int { return one.Place.Line() + offset }
	for _, one := range fields {
		var err error
		switch one.Key {
		case "type":
			err = yamltree.Into(&kind, (*yamltree.Node).Text)(one.Value)
		case "command":
			err = yamltree.Into(&h.Command, (*yamltree.Node).Text)(one.Value)
		case "args":
			h.Args = []string{}
			err = yamltree.Into(&h.Args, yamltree.All((*yamltree.Node).Text))(one.Value)
		case "timeout":
			err = yamltree.Into(&seconds, (*yamltree.Node).Amount)(one.Value)
		case "if":
			err = yamltree.Into(&h.If, (*yamltree.Node).Text)(one.Value)
		case "once":
			err = yamltree.Into(&h.Once, (*yamltree.Node).Bool)(one.Value)
		case "onFailure":
			var word string
			word, err = oneOf(one.Value, []string{"continue", "block"})
			h.Guards = word == "block"
		case "async", "asyncRewake", "shell":
			p.warn(at(one), 1, "%s has no effect here: a hook is run with bash, and waited for", one.Key)
		case "statusMessage":
		default:
			if kind == "command" {
				p.warn(at(one), 1, "no key %.60q of a hook; it says nothing", one.Key)
			}
		}
		if err != nil {
			return err
		}
	}
	switch h.Timeout = time.Duration(seconds * float64(time.Second)); {
	case slices.Contains(otherHooks, kind):
		p.warn(n.Line()+offset, 1, "a hook of type %s is not run here; hooks of type command are", kind)
		return nil
	case kind != "command":
		return noSuch(n, kind, append([]string{"command"}, otherHooks...))
	case strings.TrimSpace(h.Command) == "" || strings.ContainsRune(h.Command, 0):
		return n.Errorf("a hook needs a command")
	case seconds > MaxToolTimeout.Seconds():
		return n.Errorf("a hook may take %v at most; its timeout is in seconds", MaxToolTimeout)
	}
	if h.If != "" {
		if _, err := permission.ParseRule(h.If); err != nil {
			return n.Errorf("if: %w", err)
		}
	}
	p.d.Hooks = append(p.d.Hooks, h)
	return nil
}
