package agentfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
)

// Bounds of what a template may do.
const (
	maxTemplate  = 256 << 10          // bytes of it
	maxNodes     = 10_000             // of its parts
	maxRendered  = MaxFile + maxFiles // bytes that it may make
	maxRounds    = 100_000            // of all its loops together
	maxTemplates = 50                 // how deep its parts may be nested
)

// variables are what stands behind the dot, besides Inputs.
var variables = map[string][]string{
	"Input": nil, "ContextFolder": nil, "FocusFile": nil, "Date": nil, "Time": nil, "Agent": nil, "Inputs": nil,
	"Git": {"Branch", "Commit", "Dirty", "Root"},
}

// functions are all that a template may call.
var functions = []string{
	"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index",
	"files", "default", "join", "lower", "upper", "trim", "json",
}

// compiled is a template that was found to be good.
type compiled struct {
	tree      *parse.Tree
	marks     []mark // what Claude Code replaces in texts, by number
	usesInput bool   // the template names it
}

// templateError says what is wrong with a template, by a place in its text.
type templateError struct {
	offset int // in bytes; negative if only the line is known
	line   int // from 1
	text   string
}

func (e *templateError) Error() string { return e.text }

// place returns line and column in the text, both from 1.
func (e *templateError) place(text string) (line, column int) {
	if e.offset < 0 {
		return max(1, e.line), 1
	}
	before := text[:min(e.offset, len(text))]
	return 1 + strings.Count(before, "\n"), len(before) - strings.LastIndexByte(before, '\n')
}

// isTemplate tells whether a body is one: whether it names what the agent is
// given. Other files use braces for things of their own.
func isTemplate(text string) bool {
	begin := strings.Index(text, "{{")
	return begin >= 0 && namesGiven.MatchString(text[begin:])
}

var namesGiven = regexp.MustCompile(`\{\{-?\s*(?:[^{}]*[\s(])?\.(?:Input|Inputs|ContextFolder|FocusFile)\b`)

// compile reads a text. As a template it may hold actions; marks says whether
// what Claude Code replaces in commands is replaced in it.
func (d *Definition) compile(text string, asTemplate, marks bool) (*compiled, error) {
	if len(text) > maxTemplate && asTemplate {
		return nil, &templateError{line: 1, offset: -1, text: fmt.Sprintf("a template has %d bytes at most", maxTemplate)}
	}
	c := &compiled{}
	tree := parse.New("template")
	if asTemplate {
		tree.Mode = parse.SkipFuncCheck
		trees := map[string]*parse.Tree{}
		if _, err := tree.Parse(text, "", "", trees); err != nil {
			return nil, syntax(err)
		}
		for name, other := range trees {
			if name != "template" {
				return nil, &templateError{offset: int(other.Root.Pos), text: "define and block cannot be used here; write the text where it is needed"}
			}
		}
	} else {
		tree.Root = &parse.ListNode{NodeType: parse.NodeList, Nodes: []parse.Node{&parse.TextNode{NodeType: parse.NodeText, Text: []byte(text)}}}
	}
	c.tree = tree
	w := &walker{d: d, c: c, marks: marks}
	if err := w.list(tree.Root, true, 0); err != nil {
		return nil, err
	}
	return c, nil
}

var parseError = regexp.MustCompile(`^template: [^:]*:(\d+):(?:\d+:)? `)

func syntax(err error) error {
	text := err.Error()
	e := &templateError{offset: -1, line: 1, text: text}
	if m := parseError.FindStringSubmatch(text); m != nil {
		e.line, _ = strconv.Atoi(m[1])
		e.text = strings.TrimPrefix(text, m[0])
	}
	return e
}

// walker looks at every part of a template.
type walker struct {
	d     *Definition
	c     *compiled
	marks bool
	nodes int
}

func wrong(n parse.Node, format string, args ...any) error {
	return &templateError{offset: int(n.Position()), text: fmt.Sprintf(format, args...)}
}

// list looks at a list. Top says that the dot is what the agent is given, and not
// what a loop or a with made of it. Texts become what Claude Code makes of them.
func (w *walker) list(l *parse.ListNode, top bool, depth int) error {
	if l == nil {
		return nil
	}
	if depth > maxTemplates {
		return wrong(l, "it is nested more than %d deep", maxTemplates)
	}
	var nodes []parse.Node
	for _, n := range l.Nodes {
		if w.nodes++; w.nodes > maxNodes {
			return wrong(n, "it has more than %d parts", maxNodes)
		}
		if text, ok := n.(*parse.TextNode); ok {
			made, err := w.text(text)
			if err != nil {
				return err
			}
			nodes = append(nodes, made...)
			continue
		}
		if err := w.node(n, top, depth); err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	l.Nodes = nodes
	return nil
}

func (w *walker) node(n parse.Node, top bool, depth int) error {
	switch n := n.(type) {
	case *parse.ActionNode:
		return w.pipe(n.Pipe, top)
	case *parse.IfNode:
		return w.branch(&n.BranchNode, top, top, depth)
	case *parse.WithNode:
		return w.branch(&n.BranchNode, top, false, depth)
	case *parse.RangeNode:
		if err := w.branch(&n.BranchNode, top, false, depth); err != nil {
			return err
		}
		n.List.Nodes = append([]parse.Node{action("nestor_round")}, n.List.Nodes...)
		return nil
	case *parse.TemplateNode:
		return wrong(n, "template cannot be used here; write the text where it is needed")
	case *parse.CommentNode, *parse.BreakNode, *parse.ContinueNode:
		return nil
	}
	return wrong(n, "%.60q cannot be used here", n.String())
}

func (w *walker) branch(b *parse.BranchNode, top, inside bool, depth int) error {
	err := w.pipe(b.Pipe, top)
	if err == nil {
		err = w.list(b.List, inside, depth+1)
	}
	if err == nil {
		err = w.list(b.ElseList, top, depth+1)
	}
	return err
}

func (w *walker) pipe(p *parse.PipeNode, top bool) error {
	if p == nil {
		return nil
	}
	for _, cmd := range p.Cmds {
		for _, arg := range cmd.Args {
			if w.nodes++; w.nodes > maxNodes {
				return wrong(arg, "it has more than %d parts", maxNodes)
			}
			if err := w.arg(arg, top); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *walker) arg(n parse.Node, top bool) error {
	switch n := n.(type) {
	case *parse.PipeNode:
		return w.pipe(n, top)
	case *parse.FieldNode:
		if top {
			return w.variable(n, n.Ident)
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			return w.variable(n, n.Ident[1:])
		}
	case *parse.ChainNode:
		return w.arg(n.Node, top)
	case *parse.IdentifierNode:
		if !slices.Contains(functions, n.Ident) {
			return wrong(n, "there is no function %s; there are: %s", n.Ident, strings.Join(functions, ", "))
		}
	}
	return nil
}

// variable fails for one that there is not.
func (w *walker) variable(n parse.Node, path []string) error {
	below, known := variables[path[0]]
	switch {
	case !known:
		names := slices.Sorted(maps.Keys(variables))
		if near := Nearest(path[0], names); near != "" {
			return wrong(n, "there is no .%s; did you mean .%s?", path[0], near)
		}
		return wrong(n, "there is no .%s; there are: .%s", path[0], strings.Join(names, ", ."))
	case path[0] == "Input":
		w.c.usesInput = true
	case path[0] == "Inputs" && len(path) > 1:
		var names []string
		for _, in := range w.d.Inputs {
			names = append(names, in.Name)
		}
		if slices.Contains(names, path[1]) {
			return nil
		}
		if near := Nearest(path[1], names); near != "" {
			return wrong(n, "there is no .Inputs.%s; did you mean .Inputs.%s?", path[1], near)
		}
		return wrong(n, "there is no .Inputs.%s; declare it in inputs", path[1])
	}
	if path[0] == "Inputs" {
		return nil
	}
	if len(path) > 1 && !slices.Contains(below, path[1]) || len(path) > 2 {
		if below == nil {
			return wrong(n, "there is nothing below .%s", path[0])
		}
		return wrong(n, "there is no .%s; there are: .%s.%s", strings.Join(path, "."), path[0], strings.Join(below, ", ."+path[0]+"."))
	}
	return nil
}

// text cuts a text at what Claude Code replaces in it.
func (w *walker) text(n *parse.TextNode) ([]parse.Node, error) {
	if !w.marks {
		return []parse.Node{n}, nil
	}
	var nodes []parse.Node
	text := string(n.Text)
	from := 0
	for _, m := range findMarks(text, w.d.Arguments) {
		if w.nodes++; w.nodes > maxNodes {
			return nil, wrong(n, "it has more than %d parts", maxNodes)
		}
		if m.from > from {
			nodes = append(nodes, &parse.TextNode{NodeType: parse.NodeText, Pos: n.Pos, Text: []byte(text[from:m.from])})
		}
		nodes = append(nodes, action("nestor_mark "+strconv.Itoa(len(w.c.marks))))
		w.c.marks = append(w.c.marks, m)
		from = m.to
	}
	if from < len(text) || from == 0 {
		nodes = append(nodes, &parse.TextNode{NodeType: parse.NodeText, Pos: n.Pos, Text: []byte(text[from:])})
	}
	return nodes, nil
}

// action returns the node of an action of ours.
func action(text string) parse.Node {
	tree := parse.New("action")
	tree.Mode = parse.SkipFuncCheck
	if _, err := tree.Parse("{{"+text+"}}", "", "", map[string]*parse.Tree{}); err != nil {
		panic(err) // it is ours
	}
	return tree.Root.Nodes[0]
}

var errTooLong = fmt.Errorf("it makes more than %d bytes", maxRendered)

// bounded is a buffer that refuses to grow without end.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(data []byte) (int, error) {
	if b.Len()+len(data) > maxRendered {
		return 0, errTooLong
	}
	return b.Buffer.Write(data)
}

// execute renders c over data with the functions of ours.
func (c *compiled) execute(data any, own template.FuncMap) (string, error) {
	rounds := 0
	funcs := template.FuncMap{
		"nestor_round": func() (string, error) {
			if rounds++; rounds > maxRounds {
				return "", fmt.Errorf("its loops make more than %d rounds", maxRounds)
			}
			return "", nil
		},
		"default": func(fallback, v any) any {
			if truth, ok := template.IsTrue(v); ok && truth {
				return v
			}
			return fallback
		},
		"join":  joinWords,
		"lower": strings.ToLower, "upper": strings.ToUpper, "trim": strings.TrimSpace,
		"json": func(v any) (string, error) {
			data, err := json.Marshal(v)
			return string(data), err
		},
	}
	maps.Copy(funcs, own)
	t := template.New("template").Option("missingkey=error").Funcs(funcs)
	if _, err := t.AddParseTree("template", c.tree); err != nil {
		return "", err
	}
	var out bounded
	if err := t.Execute(&out, data); err != nil {
		if inner, ok := errors.AsType[template.ExecError](err); ok {
			err = inner.Err
		}
		return "", errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	return out.String(), nil
}

func joinWords(list any, between string) (string, error) {
	v := reflect.ValueOf(list)
	if v.Kind() != reflect.Slice {
		return "", fmt.Errorf("join wants a list, got %T", list)
	}
	if v.Len() > maxRounds {
		return "", fmt.Errorf("join: the list has %d items", v.Len())
	}
	var b strings.Builder
	for i := range v.Len() {
		if i > 0 {
			b.WriteString(between)
		}
		fmt.Fprint(&b, v.Index(i).Interface())
		if b.Len() > maxRendered {
			return "", errTooLong
		}
	}
	return b.String(), nil
}

// readTemplate reads and checks the template.
func readTemplate(p *parser, f field) error {
	text, err := f.value.Text()
	if err != nil {
		return err
	}
	p.d.Template = text
	p.later = append(p.later, func() {
		if _, err := p.d.compile(text, true, false); err != nil {
			p.bad(err, text, f.value.Line()+f.offset, strings.Contains(text, "\n"))
		}
	})
	return nil
}

// checkBody checks the text of the file, which begins in that line.
func (p *parser) checkBody(line int) {
	d := p.d
	asTemplate := isTemplate(d.Prompt)
	if _, err := d.compile(d.Prompt, asTemplate, d.Kind != Agent); err != nil {
		p.bad(err, d.Prompt, line-1, true)
	}
}

// bad says what is wrong with a template that begins behind a line, or in it.
func (p *parser) bad(err error, text string, line int, behind bool) {
	e, ok := errors.AsType[*templateError](err)
	if !ok {
		p.fail(line, 1, "template: %v", err)
		return
	}
	at, column := e.place(text)
	written := strings.Split(text, "\n")[at-1]
	if !behind {
		at = 0
	}
	// What is indented, or stands behind its key, begins further to the right.
	if i := line + at - 1; written != "" && i < len(p.lines) {
		column += max(0, strings.Index(p.lines[i], written))
	}
	p.fail(line+at, column, "template: %s", e.text)
}
