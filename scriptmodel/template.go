package scriptmodel

import (
	"fmt"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"
)

// Template is a text in a script that can quote the request.
type Template struct {
	plain string             // the text, when it quotes nothing
	tmpl  *template.Template // nil when plain says it all
}

// UnmarshalYAML parses the template.
func (t *Template) UnmarshalYAML(node *yaml.Node) error {
	var text string
	if err := node.Decode(&text); err != nil {
		return err
	}
	parsed, err := parseTemplate(text)
	if err != nil {
		return err
	}
	*t = *parsed
	return nil
}

func parseTemplate(text string) (*Template, error) {
	if !strings.Contains(text, "{{") {
		return &Template{plain: text}, nil
	}
	// A carried script is quoted whole: its templates are not ours.
	var carried []string
	var outer strings.Builder
	rest := text
	for {
		f, ok := findFence(rest)
		if !ok {
			break
		}
		outer.WriteString(rest[:f.start])
		fmt.Fprintf(&outer, "{{carried %d}}", len(carried))
		carried = append(carried, rest[f.start:f.end])
		rest = rest[f.end:]
	}
	outer.WriteString(rest)
	tmpl, err := template.New("text").Funcs(template.FuncMap{
		"carried": func(i int) string { return carried[i] },
	}).Parse(outer.String())
	if err != nil {
		return nil, err
	}
	// Run once on a sample, so that a misspelt field is found at load.
	if err := tmpl.Execute(new(strings.Builder), sampleQuote()); err != nil {
		return nil, err
	}
	return &Template{tmpl: tmpl.Option("missingkey=error")}, nil
}

// quote is what a template can quote.
type quote struct {
	Model, System, Prompt string
	Turn                  int
	Tools                 []string
	ToolResult            string
	ToolResults           []string
	Match                 []string
	Named                 map[string]string
}

// sampleQuote has enough of everything for a template that can work.
func sampleQuote() *quote {
	many := make([]string, 100)
	return &quote{Match: many, Tools: many, ToolResults: many}
}

func (t *Template) render(q *quote) (string, error) {
	if t == nil {
		return "", nil
	}
	if t.tmpl == nil {
		return t.plain, nil
	}
	var b strings.Builder
	if err := t.tmpl.Execute(&b, q); err != nil {
		return "", err
	}
	return b.String(), nil
}

// Value is any YAML value whose strings are templates.
type Value struct{ v any }

// UnmarshalYAML parses the templates inside the value.
func (v *Value) UnmarshalYAML(node *yaml.Node) error {
	var raw any
	if err := node.Decode(&raw); err != nil {
		return err
	}
	parsed, err := parseValue(raw)
	v.v = parsed
	return err
}

func parseValue(raw any) (any, error) {
	switch raw := raw.(type) {
	case string:
		return parseTemplate(raw)
	case []any:
		for i := range raw {
			p, err := parseValue(raw[i])
			if err != nil {
				return nil, err
			}
			raw[i] = p
		}
	case map[string]any:
		for k := range raw {
			p, err := parseValue(raw[k])
			if err != nil {
				return nil, err
			}
			raw[k] = p
		}
	}
	return raw, nil
}

func (v Value) render(q *quote) (any, error) { return renderValue(v.v, q) }

func renderValue(v any, q *quote) (any, error) {
	switch v := v.(type) {
	case *Template:
		return v.render(q)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			r, err := renderValue(v[i], q)
			if err != nil {
				return nil, err
			}
			out[i] = r
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			r, err := renderValue(v[k], q)
			if err != nil {
				return nil, err
			}
			out[k] = r
		}
		return out, nil
	}
	return v, nil
}

// fence is where a carried script stands in a text.
type fence struct {
	start, end int    // the block with its fences
	body       string // what is between them, without the indentation
}

const fenceOpen = "```script"

// findFence finds the first carried script. The closing fence stands at the
// same indentation as the opening one, so that a script can carry a script.
func findFence(text string) (fence, bool) {
	at := 0
	open, indent := -1, ""
	var body strings.Builder
	for line := range strings.Lines(text) {
		bare := strings.TrimRight(line, " \t\r\n")
		switch {
		case open < 0:
			if strings.TrimLeft(bare, " \t") == fenceOpen {
				open, indent = at, bare[:len(bare)-len(fenceOpen)]
			}
		case bare == indent+"```":
			return fence{start: open, end: at + len(bare), body: body.String()}, true
		default:
			body.WriteString(strings.TrimPrefix(line, indent))
		}
		at += len(line)
	}
	return fence{}, false
}
