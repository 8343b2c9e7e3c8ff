package agentfile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/yamltree"
)

// key is one that front matter may hold.
type key struct {
	kinds   []Kind
	ours    bool   // Claude Code does not know it
	flat    bool   // its value is a text or a list: what is no YAML counts as the text that stands there
	lenient bool   // what is wrong with its value is a warning, and the value does not count
	null    bool   // it may be there without a value
	instead string // what to write in files of other kinds
	read    func(*parser, field) error
}

var (
	every  = []Kind{Agent, Skill, Command}
	agents = []Kind{Agent}
	typed  = []Kind{Skill, Command} // what a person types as /name

)

// keys are all keys that there are: those of Claude Code, as of 2.1.325 and its
// public documentation, and ours.
var keys map[string]key = allKeys()

func allKeys() map[string]key {
	known := func(kinds []Kind) key { return key{kinds: kinds, flat: true, null: true} }
	modes := key{kinds: every, flat: true, read: readMode}
	servers := key{kinds: []Kind{Agent, Skill}, read: readServers}
	denied := key{kinds: every, flat: true, read: func(p *parser, f field) (err error) {
		p.d.DisallowedTools, err = readRules(f.value)
		return err
	}}
	m := map[string]key{
		// Claude Code's.
		"name":            {kinds: every, flat: true, read: readName},
		"description":     {kinds: every, flat: true, lenient: true, read: readDescription},
		"model":           {kinds: every, flat: true, read: readModel},
		"tools":           {kinds: every, flat: true, null: true, read: readTools},
		"disallowedTools": denied, "disallowed-tools": denied,
		"permissionMode": modes,
		"mcpServers":     servers,
		"maxTurns": {kinds: agents, flat: true, lenient: true, read: func(p *parser, f field) error {
			return yamltree.Into(&p.d.Limits.Turns, (*yamltree.Node).Count)(f.value)
		}},
		"allowed-tools":                {kinds: typed, flat: true, null: true, instead: "; an agent has tools", read: readAllowed},
		"arguments":                    {kinds: typed, flat: true, lenient: true, read: readArguments},
		"hooks":                        {kinds: every, null: true, read: readHooks},
		"skills":                       {kinds: agents, flat: true, null: true, read: readSkills},
		"memory":                       {kinds: agents, flat: true, read: readMemory},
		"isolation":                    {kinds: agents, flat: true, read: readIsolation},
		"background":                   known(agents),
		"effort":                       known(every),
		"color":                        known(agents),
		"initialPrompt":                known(agents),
		"disabled":                     known(every),
		"argument-hint":                known(typed),
		"disable-model-invocation":     known(typed),
		"user-invocable":               known(typed),
		"hide-from-slash-command-tool": known(typed),
		"context":                      known(typed),
		"agent":                        known(typed),
		"when_to_use":                  known(every),
		"when-to-use":                  known(every),
		"paths":                        known(typed),
		"shell":                        known(typed),
		"version":                      known(every),
		"license":                      known(every),
		"compatibility":                known(every),
		"dependencies":                 known(every),
		"mode":                         known(typed),
		"metadata":                     {kinds: every, null: true},
	}
	for name, k := range ourKeys(modes, servers, denied) {
		k.ours = true
		m[name] = k
	}
	return m
}

func ourKeys(modes, servers, denied key) map[string]key {
	return map[string]key{
		"type": {kinds: every, flat: true, read: readType},
		"role": {kinds: every, flat: true, read: func(p *parser, f field) (err error) {
			p.d.Role, err = oneOf(f.value, p.roles)
			return err
		}},
		"provider": {kinds: every, flat: true, read: func(p *parser, f field) (err error) {
			p.d.Provider, err = oneOf(f.value, []string{"sdk", "api", "scripted"})
			return err
		}},
		"permission_mode":  modes,
		"mcp_servers":      servers,
		"disallowed_tools": denied,
		"custom_tools":     {kinds: every, read: readCustomTools},
		"template":         {kinds: every, read: readTemplate},
		"inputs":           {kinds: every, read: readInputs},
		"output_schema": {kinds: every, read: func(p *parser, f field) (err error) {
			p.d.OutputSchema, err = readSchema(f.value)
			return err
		}},
		"limits": {kinds: every, read: readLimits},
		"max_depth": {kinds: every, flat: true, read: func(p *parser, f field) error {
			if p.depth > 0 {
				return f.place.Errorf("limits.max_depth in line %d says the same; keep one of the two", p.depth)
			}
			return yamltree.Into(&p.d.MaxDepth, positive)(f.value)
		}},
		"delegates": {kinds: every, flat: true, null: true, read: func(p *parser, f field) (err error) {
			p.d.Delegates, err = readList(f.value)
			return err
		}},
		"delegation": {kinds: every, flat: true, read: func(p *parser, f field) error {
			word, err := oneOf(f.value, []string{string(Pool), string(CLI)})
			p.d.Delegation = Delegation(word)
			return err
		}},
	}
}

func isFlat(name string) bool {
	k, known := keys[name]
	return !known || k.flat
}

// oneOf reads a word that is one of a few.
func oneOf(n *yamltree.Node, words []string) (string, error) {
	word, err := n.Text()
	if err != nil || slices.Contains(words, word) {
		return word, err
	}
	return "", noSuch(n, word, words)
}

// noSuch is the error of a word that is none of these.
func noSuch(n *yamltree.Node, word string, words []string) error {
	if near := Nearest(word, words); near != "" {
		return n.Errorf("there is no %.60q; did you mean %q?", word, near)
	}
	return n.Errorf("there is no %.60q; there are: %s", word, strings.Join(words, ", "))
}

func positive(n *yamltree.Node) (int, error) {
	number, err := n.Count()
	if err == nil && number == 0 {
		err = n.Errorf("want a whole number, 1 or more")
	}
	return number, err
}

// readName reads the name of an agent; a skill has the name of its folder, and a
// command that of its file, as in Claude Code.
func readName(p *parser, f field) error {
	name, err := f.value.Text()
	if err != nil {
		return err
	}
	if p.d.Kind == Agent {
		p.d.Name = strings.TrimSpace(name)
		return nil
	}
	if p.d.Kind == Skill && name != p.d.Name {
		line, column := f.at()
		p.warn(line, column, "the skill goes by the name of its folder, %s, not by %.60q; make them the same", p.d.Name, name)
	}
	return nil
}

func readDescription(p *parser, f field) error {
	if f.value.List() { // [like this] is meant as text
		words, err := yamltree.All((*yamltree.Node).Text)(f.value)
		p.d.Description = "[" + strings.Join(words, ", ") + "]"
		return err
	}
	text, err := f.value.Text()
	p.d.Description = strings.TrimSpace(text)
	return err
}

// readModel reads a model; inherit means none.
func readModel(p *parser, f field) error {
	word, err := f.value.Text()
	if err != nil {
		return err
	}
	if word = strings.TrimSpace(word); strings.ContainsAny(word, " \t\n") {
		return f.value.Errorf("want the name of a model, such as sonnet, or inherit, got %.60q", word)
	}
	if word != "inherit" {
		p.d.Model = word
	}
	return nil
}

func readMode(p *parser, f field) (err error) {
	if p.d.PermissionMode != "" {
		return f.place.Errorf("the permission mode is said twice; keep one of permissionMode and permission_mode")
	}
	p.d.PermissionMode, err = oneOf(f.value, permission.Modes())
	return err
}

// readType reads the kind; or the role, as swarms had it before roles had a key.
func readType(p *parser, f field) error {
	kinds := []string{string(Command), string(Skill), string(Agent)}
	word, err := oneOf(f.value, append(kinds, p.roles...))
	if err == nil && !slices.Contains(kinds, word) && p.d.Role == "" {
		p.d.Role = word
	}
	return err
}

// readTools reads the tools that there are: * means all, and nothing means none.
func readTools(p *parser, f field) error {
	p.tools = true
	if f.value.Null() {
		line, column := f.at()
		p.warn(line, column, "tools names none, so there are none; remove the key if all are meant, or write tools: []")
		p.d.Tools = []string{}
		return nil
	}
	list, err := readRules(f.value)
	if err == nil && !slices.Contains(list, "*") {
		p.d.Tools = append([]string{}, list...)
	}
	return err
}

// readAllowed reads the tools that a command or a skill has besides the usual ones.
func readAllowed(p *parser, f field) (err error) {
	if f.value.Null() {
		return nil
	}
	p.allowed, err = readRules(f.value)
	p.allowed = slices.DeleteFunc(p.allowed, func(rule string) bool { return rule == "*" })
	return err
}

var argumentName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

func readArguments(p *parser, f field) error {
	names, err := readList(f.value)
	for _, name := range names {
		if !argumentName.MatchString(name) {
			return f.value.Errorf("%.60q is no name of an argument; want letters, digits, - and _", name)
		}
	}
	p.d.Arguments = names
	return err
}

// readList reads a list, or a text with commas or blanks between its words.
// Blanks and commas in parentheses are part of a word.
func readList(n *yamltree.Node) ([]string, error) {
	list := []string{}
	switch {
	case n.Null():
		return list, nil
	case n.List():
		words, err := yamltree.All((*yamltree.Node).Text)(n)
		for _, word := range words {
			if word = strings.TrimSpace(word); word != "" {
				list = append(list, word)
			}
		}
		return list, err
	}
	text, err := n.Text()
	if err != nil {
		return nil, n.Errorf("want a list, such as [a, b] or a, b, got %s", n.What())
	}
	text = strings.TrimSpace(text)
	if inner, ok := strings.CutPrefix(text, "["); ok { // a list that is no YAML
		text = strings.TrimSuffix(inner, "]")
	}
	depth, from := 0, 0
	for i, c := range text + "," {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth = max(0, depth-1)
		case (c == ',' || c == ' ' || c == '\t' || c == '\n') && (depth == 0 || i == len(text)):
			if word := strings.Trim(text[from:i], `"'`); word != "" {
				list = append(list, word)
			}
			from = i + 1
		}
	}
	return list, nil
}

// maxTools is how many tools a list may name.
const maxTools = 500

// readRules reads a list of tools, or of rules about them.
func readRules(n *yamltree.Node) ([]string, error) {
	list, err := readList(n)
	if err != nil {
		return nil, err
	}
	if len(list) > maxTools {
		return nil, n.Errorf("there are more than %d tools", maxTools)
	}
	for _, rule := range list {
		if _, err := permission.ParseRule(rule); err != nil && rule != "*" {
			return nil, n.Errorf("%w", err)
		}
	}
	return list, nil
}

func readLimits(p *parser, f field) error {
	l := &p.d.Limits
	count := func(to *int) func(*yamltree.Node) error { return yamltree.Into(to, positive) }
	return f.value.Each(map[string]func(*yamltree.Node) error{
		"max_turns":       count(&l.Turns),
		"timeout":         yamltree.Into(&l.Timeout, (*yamltree.Node).Duration),
		"max_budget_usd":  yamltree.Into(&l.BudgetUSD, (*yamltree.Node).Amount),
		"max_children":    count(&l.Children),
		"max_descendants": count(&l.Descendants),
		"max_attempts":    count(&l.Attempts),
		"max_resumes":     count(&l.Resumes),
		"backoff":         yamltree.Into(&l.Backoff, (*yamltree.Node).Duration),
		"silence":         yamltree.Into(&l.Silence, (*yamltree.Node).Duration),
		"limit_wait":      yamltree.Into(&l.LimitWait, (*yamltree.Node).Duration),
		"max_depth": func(n *yamltree.Node) error {
			if p.d.MaxDepth > 0 {
				return n.Errorf("max_depth stands above, too; keep one of the two")
			}
			p.depth = n.Line() + f.offset
			return yamltree.Into(&p.d.MaxDepth, positive)(n)
		},
	})
}

// readServers reads MCP servers: a mapping of names to what starts or reaches
// them; or, as Claude Code has it, a list of such mappings and of names.
func readServers(p *parser, f field) error {
	if !f.value.List() {
		return readServerMap(p, f.value)
	}
	items, err := f.value.Items()
	errs := []error{err}
	for _, item := range items {
		if item.Mapping() {
			errs = append(errs, readServerMap(p, item))
			continue
		}
		name, err := item.Text()
		errs = append(errs, err)
		if err == nil {
			p.warn(item.Line()+f.offset, 1, "the MCP server %.60q is one of Claude Code's settings, which are not looked at; say here what starts it, as {%s: {command: …}}", name, name)
		}
	}
	return join(errs)
}

func readServerMap(p *parser, n *yamltree.Node) error {
	fields, err := n.Fields()
	errs := []error{err}
	for _, one := range fields {
		if !isName(one.Key) || strings.Contains(one.Key, "__") {
			errs = append(errs, one.Place.Errorf("%.60q is no name of a server; want letters, digits, - and _", one.Key))
			continue
		}
		var s MCPServer
		var kind string
		err := one.Value.Each(map[string]func(*yamltree.Node) error{
			"type":    yamltree.Into(&kind, (*yamltree.Node).Text),
			"command": yamltree.Into(&s.Command, (*yamltree.Node).Text),
			"args":    yamltree.Into(&s.Args, yamltree.All((*yamltree.Node).Text)),
			"env":     yamltree.Into(&s.Env, readMap),
			"url":     yamltree.Into(&s.URL, (*yamltree.Node).Text),
			"headers": yamltree.Into(&s.Headers, readMap),
		})
		switch {
		case err != nil:
		case kind == "sse":
			err = one.Value.Errorf("a server of type sse cannot be used; want http, or a command")
		case (s.Command == "") == (s.URL == ""):
			err = one.Value.Errorf("want a command that starts the server %s, or the url of one that runs", one.Key)
		case s.URL != "" && !strings.HasPrefix(s.URL, "https://") && !strings.HasPrefix(s.URL, "http://"):
			err = one.Value.Errorf("url %.60q: want https://…", s.URL)
		}
		errs = append(errs, err)
		if p.d.MCPServers == nil {
			p.d.MCPServers = map[string]MCPServer{}
		}
		p.d.MCPServers[one.Key] = s
	}
	return join(errs)
}

func readMap(n *yamltree.Node) (map[string]string, error) {
	fields, err := n.Fields()
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for _, f := range fields {
		if m[f.Key], err = f.Value.Text(); err != nil {
			return nil, fmt.Errorf("%w", err)
		}
	}
	return m, nil
}
