package agentfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

// Facts are what a definition is rendered over. The zero value has none.
type Facts struct {
	Input     string
	Inputs    map[string]json.RawMessage // see CheckInputs
	Dir       string                     // where the run works; its files are read from there alone. Empty means that none are
	FocusFile string                     // what it is about; empty means nothing in particular
	SkillDir  string                     // where a skill's files are
	Carried   []string                   // where those of the carried skills are, in their order
	Memory    string                     // what the agent is told of its memory; empty means nothing
	Now       time.Time
	Git       Git
	// Run runs a command that stands in a text as !`command`, and returns what it
	// says; nil refuses all.
	Run func(context.Context, ShellCommand) (string, error)
}

// Git is what git says of the folder. Empty fields are not known.
type Git struct {
	Branch string
	Commit string
	Root   string
	Dirty  bool
}

// ShellCommand is a command of a text. The input is handed to it beside its text,
// so that nothing in an input is ever executed.
type ShellCommand struct {
	Line string
	// Filled is the line with the input in it, in quotes: what somebody has to look
	// at who decides about it. It is not what is run.
	Filled string
	Args   []string // $1, $2 …
	Env    []string // K=V: ARGUMENTS, and the arguments that have names
}

// Rendered is what an agent is told.
type Rendered struct {
	Instructions string // the system prompt; empty means none
	Message      string // the first message
	// Problem is why the input is the message as it is, or the text of the file
	// stands in the instructions as it is; nil if nothing is wrong.
	Problem error
}

// UsesCommands returns the commands that the text of the file has executed when it
// is rendered.
func (d Definition) UsesCommands() []string {
	if d.Kind == Agent {
		return nil
	}
	var list []string
	c, err := d.body()
	if err != nil {
		return nil
	}
	for _, m := range c.marks {
		if m.kind == command {
			list = append(list, m.word)
		}
	}
	return list
}

func (d *Definition) body() (*compiled, error) {
	return d.compile(d.Prompt, isTemplate(d.Prompt), d.Kind != Agent)
}

// Render makes of the definition and an input what the agent is told. The text of
// a command is the message, that of a skill or an agent its instructions; a
// template makes the message in any case. It does not fail: what cannot be
// rendered is told as it is, and Problem says why.
func (d Definition) Render(ctx context.Context, f Facts) Rendered {
	out := Rendered{Message: f.Input}
	r := &rendering{d: &d, facts: f, args: splitWords(f.Input)}
	defer r.close()
	body, used, err := r.body(ctx)
	var problems []error
	if err != nil {
		problems = append(problems, fmt.Errorf("rendering the text of %s: %w", d.Source.File, err))
		body, used = d.Prompt, false
	}
	switch {
	case d.Kind == Command && d.Template == "" && err == nil:
		out.Message = body
		if !used && strings.TrimSpace(f.Input) != "" {
			out.Message = strings.TrimSpace(body + "\n\nARGUMENTS: " + f.Input)
		}
	default:
		out.Instructions = body
	}
	if d.Kind == Skill && f.SkillDir != "" {
		out.Instructions = "Base directory for this skill: " + f.SkillDir + "\n\n" + out.Instructions
	}
	for i, c := range d.Carried {
		told := c.carried(ctx, f, i)
		out.Instructions = strings.TrimLeft(out.Instructions+"\n\n"+told.Instructions, "\n")
		if told.Problem != nil {
			problems = append(problems, told.Problem)
		}
	}
	if f.Memory != "" {
		out.Instructions = strings.TrimLeft(out.Instructions+"\n\n"+f.Memory, "\n")
	}
	if d.Template != "" {
		message, err := r.template(ctx)
		if err != nil {
			problems = append(problems, fmt.Errorf("rendering the template of %s: %w", d.Source.File, err))
		} else {
			out.Message = message
		}
	}
	out.Problem = errors.Join(problems...)
	return out
}

// rendering is one Render.
type rendering struct {
	d     *Definition
	facts Facts
	args  []string
	root  *os.Root // of the folder; nil until it is needed
	named []string // files that the text names
	used  bool     // something of the input is in the text
	room  int      // for what files hold
}

func (r *rendering) close() {
	if r.root != nil {
		r.root.Close()
	}
}

// body renders the text of the file, and tells whether the input is in it. Files
// that it names follow it.
func (r *rendering) body(ctx context.Context) (string, bool, error) {
	c, err := r.d.body()
	if err != nil {
		return "", false, err
	}
	r.room = maxFiles
	text, err := c.execute(r.data(), r.funcs(ctx, c))
	if err != nil {
		return "", false, err
	}
	for _, name := range r.named {
		if content, err := r.read(name); err == nil {
			text += "\n\n" + quoteFile(name, content)
		}
	}
	return text, c.usesInput || r.used, nil
}

// template renders the template.
func (r *rendering) template(ctx context.Context) (string, error) {
	c, err := r.d.compile(r.d.Template, true, false)
	if err != nil {
		return "", err
	}
	r.room = maxFiles
	return c.execute(r.data(), r.funcs(ctx, c))
}

// data is what stands behind the dot.
func (r *rendering) data() map[string]any {
	inputs := map[string]any{}
	for _, in := range r.d.Inputs {
		inputs[in.Name] = in.absent()
	}
	for name, raw := range r.facts.Inputs {
		var v any
		if json.Unmarshal(raw, &v) == nil {
			inputs[name] = v
		}
	}
	g := r.facts.Git
	return map[string]any{
		"Input": r.facts.Input, "Inputs": inputs, "ContextFolder": r.facts.Dir, "FocusFile": r.facts.FocusFile, "Agent": r.d.Name,
		"Date": r.facts.Now.Format(time.DateOnly), "Time": r.facts.Now.Format(time.RFC3339),
		"Git": map[string]any{"Branch": g.Branch, "Commit": g.Commit, "Dirty": g.Dirty, "Root": g.Root},
	}
}

func (r *rendering) funcs(ctx context.Context, c *compiled) template.FuncMap {
	return template.FuncMap{
		"files": r.files,
		"nestor_mark": func(n int) (string, error) {
			return r.mark(ctx, c.marks[n])
		},
	}
}

// mark returns what a mark stands for.
func (r *rendering) mark(ctx context.Context, m mark) (string, error) {
	switch m.kind {
	case argument:
		text, given := argumentText(m.index, r.facts.Input, r.args)
		if !given {
			return m.written, nil
		}
		r.used = true
		return text, nil
	case folder:
		return r.facts.SkillDir, nil
	case file:
		name := fill(m.word, m.first, r.facts.Input, r.args, r.d.Arguments, func(word string) string { return word })
		r.used = r.used || name != m.word
		if r.holds(name) && len(r.named) < maxNamed {
			r.named = append(r.named, filepath.ToSlash(filepath.Clean(name)))
		}
		if name == m.word {
			return m.written, nil
		}
		return "@" + name, nil
	}
	if r.facts.Run == nil {
		return "", fmt.Errorf("the command %.100q is not allowed here", m.word)
	}
	cmd := ShellCommand{
		Line: m.word, Filled: fill(m.word, m.first, r.facts.Input, r.args, r.d.Arguments, quoteWord),
		Args: append([]string{"command"}[:m.first], r.args...), Env: []string{"ARGUMENTS=" + r.facts.Input},
	}
	r.used = r.used || cmd.Filled != cmd.Line
	for i, name := range r.d.Arguments {
		if !strings.Contains(name, "-") {
			text, _ := argumentText(i, r.facts.Input, r.args)
			cmd.Env = append(cmd.Env, name+"="+text)
		}
	}
	said, err := r.facts.Run(ctx, cmd)
	if err != nil {
		return "", fmt.Errorf("the command %.100q: %w", m.word, err)
	}
	return strings.TrimRight(said, "\n"), nil
}
