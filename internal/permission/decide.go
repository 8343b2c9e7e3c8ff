package permission

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Decide answers a call. In this order: what cannot be read is denied; then what
// the policy's bounds do not hold; then what a rule denies. Of the rest, what a
// rule asks about is asked; what only reads or touches the session alone is
// allowed; and each grant has a say, of which the strictest counts: the mode
// plan denies, then rules allow, then the mode decides. Where nobody is to be
// asked, by the mode, asking is denying.
func (p Policy) Decide(c Call) Decision {
	s, err := look(c)
	if err != nil {
		return Decision{Deny, sentence("%v", err), "input"}
	}
	if rule, err := p.bounds(s); err != nil {
		return Decision{Deny, sentence("%s is not allowed: %v", s.Tool, err), rule}
	}
	stops := func(r Rule) bool { return r.Stops(s.Target) }
	if i := slices.IndexFunc(p.Deny, stops); i >= 0 {
		return Decision{Deny, sentence("%s is denied by the rule %s", s.Tool, p.Deny[i]), "deny " + p.Deny[i].String()}
	}
	asks := slices.IndexFunc(p.Ask, stops)
	var d Decision
	for i, g := range append([]Grant{p.Grant}, p.Also...) {
		var one Decision
		if asks >= 0 {
			one = g.ask(s, "ask "+p.Ask[asks].String(), fmt.Sprintf("the rule %s wants it asked about", p.Ask[asks]))
		} else {
			one = p.grants(g, s)
		}
		if i == 0 || one.Verdict < d.Verdict {
			d = one
		}
	}
	return d
}

// bounds says which of the policy's bounds does not hold a call, and why.
func (p Policy) bounds(s subject) (rule string, err error) {
	if !p.exists(s.Tool) {
		return p.bound("tools"), errors.New("it is not one of this run's tools")
	}
	switch s.kind {
	case read:
		if !withinAny(p.Read, s.Path) {
			return p.bound("read %s", listed(p.Read)), fmt.Errorf("%s is outside of what may be read: %s", clip(s.Path), listed(p.Read))
		}
	case edit:
		if !withinAny(p.Write, s.Path) {
			return p.bound("write %s", listed(p.Write)), fmt.Errorf("%s is outside of what may be changed: %s", clip(s.Path), listed(p.Write))
		}
	case shell:
		return p.shellBounds(s)
	case fetch:
		if !p.Web {
			return p.bound("web no"), errors.New("this run has no web")
		}
		if p.Hosts != nil && !slices.ContainsFunc(p.Hosts, func(h string) bool { return hostFits(h, s.Host) }) {
			return p.bound("hosts"), fmt.Errorf("%s is not one of the hosts that may be reached: %s", clip(s.Host), named(p.Hosts))
		}
	case search:
		if !p.Web {
			return p.bound("web no"), errors.New("this run has no web")
		}
		if p.Hosts != nil {
			return p.bound("hosts"), p.searches(s.hosts)
		}
	case spawn:
		if !p.Spawn {
			return p.bound("spawn no"), errors.New("this run starts no agents")
		}
	}
	return "", nil
}

func (p Policy) shellBounds(s subject) (rule string, err error) {
	switch {
	case p.Bash == No:
		return p.bound("bash no"), errors.New("this run has no commands")
	case s.unconfined:
		return p.bound("sandbox"), errors.New("no command leaves its sandbox; call it without dangerouslyDisableSandbox")
	case p.Bash == Limited:
		if s.Tool != "Bash" {
			return p.bound("bash limited"), errors.New("commands of this run go through Bash")
		}
		r, err := limited(s.line)
		if err == nil {
			err = r.allowedIn(p.Read, s.Dir)
		}
		if err != nil {
			return p.bound("bash limited"), fmt.Errorf("commands of this run only read, and %w", err)
		}
	default:
		if err := p.git(s.Command, s.seen, s.Dir); err != nil {
			return p.bound("git %s", gitCell(p.Git)), err
		}
	}
	return "", nil
}

// searches says why a search may find what is on no host of the policy, or nil.
func (p Policy) searches(hosts []string) error {
	if len(hosts) == 0 {
		return fmt.Errorf("only these hosts may be reached, so the search needs its allowed_domains: %s", named(p.Hosts))
	}
	for _, host := range hosts {
		if !slices.ContainsFunc(p.Hosts, func(h string) bool { return hostFits(h, host) }) {
			return fmt.Errorf("%s is not one of the hosts that may be reached: %s", clip(host), named(p.Hosts))
		}
	}
	return nil
}

// grants is what one grant says about a call within bounds, that no rule stops.
func (p Policy) grants(g Grant, s subject) Decision {
	switch s.kind {
	case inner:
		return Decision{Allow, sentence("%s touches nothing but the session", s.Tool), "tool " + s.Tool}
	case read:
		return Decision{Allow, sentence("%s lies in what may be read", clip(s.Path)), p.bound("read %s", listed(p.Read))}
	case shell:
		if s.Tool == "Bash" && p.harmlessLine(s) {
			return Decision{Allow, "The command only reads.", p.bound("bash %v", p.Bash)}
		}
	}
	if g.Mode == ModePlan {
		return Decision{Deny, sentence("this is plan mode: look, but change nothing. %s was not run", s.Tool), "mode plan"}
	}
	if r, ok := p.allowed(g, s); ok {
		return Decision{Allow, sentence("the rule %s allows it", r), "allow " + r.String()}
	}
	switch {
	case g.Mode == ModeBypass && s.kind != unknown,
		g.Mode == ModeAcceptEdits && s.kind == edit:
		return Decision{Allow, sentence("the mode %s allows it", g.Mode), "mode " + g.Mode}
	}
	return g.ask(s, "mode "+g.mode(), "no rule allows it")
}

func (p Policy) allowed(g Grant, s subject) (Rule, bool) {
	if s.kind != shell {
		return Allowed(g.Allow, s.Target)
	}
	return allowedLine(g.Allow, s.Target, s.line, func(part simple) bool { return p.harmless(part, s.Dir) })
}

// harmlessLine tells whether all that a command line does is to read what may be
// read.
func (p Policy) harmlessLine(s subject) bool {
	return s.line.opaque == "" && !slices.ContainsFunc(s.line.parts, func(part simple) bool { return !p.harmless(part, s.Dir) })
}

func (p Policy) harmless(part simple, dir string) bool {
	r, err := onlyReads(part)
	return err == nil && r.allowedIn(p.Read, dir) == nil
}

// ask is the decision that somebody is asked, or that nobody is to be.
func (g Grant) ask(s subject, rule, why string) Decision {
	switch g.Mode {
	case ModeBypass, ModeAcceptEdits, ModeDefault, ModeAuto:
		return Decision{Ask, sentence("%s is asked about: %s", s.Tool, why), rule}
	case ModePlan:
		return Decision{Deny, sentence("this is plan mode, and %s", why), rule}
	}
	return Decision{Deny, sentence("%s was not run: %s, and this run asks nobody", s.Tool, why), rule}
}

// mode returns the mode's name: of one that is not known, the strictest.
func (g Grant) mode() string {
	if slices.Contains(Modes(), g.Mode) {
		return g.Mode
	}
	return ModeDontAsk
}

// exists tells whether a tool is one of the policy's.
func (p Policy) exists(tool string) bool {
	return p.Tools == nil || slices.ContainsFunc(p.Tools, func(name string) bool { return holdsTool(name, tool) })
}

// holdsTool tells whether a name among a policy's tools is for a tool, or for
// all that another name is for.
func holdsTool(name, tool string) bool {
	if canonical(name) == canonical(tool) {
		return true
	}
	server, ok := serverOf(name)
	other, isServer := serverOf(tool)
	return ok && (strings.HasPrefix(tool, server) || isServer && server == other)
}

// Offer returns those of the tools that a run may call at all, in their order:
// no Bash where there are no commands, no Edit where nothing may be changed. With
// nil it is about the tools of Claude Code that this package knows, sorted.
func (p Policy) Offer(tools []string) []string {
	if tools == nil {
		tools = slices.Sorted(maps.Keys(kinds))
	}
	var list []string
	for _, tool := range tools {
		denied := slices.ContainsFunc(p.Deny, func(r Rule) bool { return r.Content == "" && r.names(tool, true) })
		if !denied && p.exists(tool) && p.offers(tool) {
			list = append(list, tool)
		}
	}
	return list
}

func (p Policy) offers(tool string) bool {
	switch kindOf(tool) {
	case read:
		return len(p.Read) > 0
	case edit:
		return len(p.Write) > 0
	case shell:
		return p.Bash == Yes || p.Bash == Limited && tool == "Bash"
	case fetch, search:
		return p.Web && (p.Hosts == nil || len(p.Hosts) > 0)
	case spawn:
		return p.Spawn
	}
	return true
}

func named(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// sentence makes a reason one: it begins with a capital and ends with a stop.
func sentence(format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:] + "."
}
