package agentfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// Bounds of the skills that an agent carries.
const (
	maxCarried     = 20        // how many
	maxCarriedText = 256 << 10 // bytes of their texts, together
)

// readSkills reads the skills that an agent carries. Whether they are there, a Set
// knows.
func readSkills(p *parser, f field) error {
	names, err := readList(f.value)
	if err != nil {
		return err
	}
	if len(names) > maxCarried {
		return f.value.Errorf("there are more than %d skills; have the agent read what it needs of the others", maxCarried)
	}
	p.d.Skills, p.d.skillsLine = nil, f.value.Line()+f.offset
	if names = unique(names); len(names) > 0 {
		p.d.Skills = names
	}
	return nil
}

// carry gives the agents of a set the skills that they name. One whose skills are
// not there cannot be used.
func (s Set) carry() {
	skills := map[string]Entry{}
	var names []string
	for _, e := range s.entries {
		if e.Kind == Skill && e.ShadowedBy == "" {
			skills[e.Name] = e
			names = append(names, e.Name)
		}
	}
	for i, e := range s.entries {
		if e.definition == nil || len(e.definition.Skills) == 0 {
			continue
		}
		d := e.definition.Clone() // what was read stays as it is
		problems := slices.Clone(e.Problems)
		for _, message := range d.carry(skills, names) {
			problems = append(problems, Problem{File: e.Source.File, Line: d.skillsLine, Message: message})
		}
		s.entries[i].definition = &d
		if len(problems) > len(e.Problems) {
			s.entries[i].definition = nil
		}
		s.entries[i].Problems = problems
	}
}

// carry takes skills up, and returns what is wrong with them.
func (d *Definition) carry(skills map[string]Entry, names []string) (problems []string) {
	size := 0
	sum := sha256.New()
	fmt.Fprintln(sum, d.Hash)
	owners := map[string]string{}
	for _, t := range d.CustomTools {
		owners[t.Name] = "the agent"
	}
	for _, name := range d.Skills {
		e, known := skills[name]
		switch near := Nearest(name, names); {
		case known && e.definition == nil:
			problems = append(problems, fmt.Sprintf("the skill %s cannot be used: see what is wrong with %s", name, e.Source.File))
			continue
		case known:
		case near != "":
			problems = append(problems, fmt.Sprintf("there is no skill %.60q; did you mean %q?", name, near))
			continue
		default:
			problems = append(problems, fmt.Sprintf("there is no skill %.60q; make .claude/skills/%.60s/SKILL.md, or remove it here", name, name))
			continue
		}
		c := e.definition.Clone()
		if size += len(c.Prompt); size > maxCarriedText {
			return append(problems, fmt.Sprintf("the texts of its skills have more than %d bytes together, from %s on; carry fewer, or have the agent read files of theirs when it needs them", maxCarriedText, name))
		}
		for _, t := range c.CustomTools {
			if other := owners[t.Name]; other != "" {
				problems = append(problems, fmt.Sprintf("both %s and the skill %s have a custom tool %s; give one of them another name", other, name, t.Name))
			}
			owners[t.Name] = "the skill " + name
			if d.Tools != nil && !slices.Contains(d.Tools, t.ToolName()) {
				d.Tools = append(d.Tools, t.ToolName())
			}
		}
		if _, taken := d.MCPServers[CustomServer]; taken && len(c.CustomTools) > 0 {
			problems = append(problems, fmt.Sprintf("an MCP server %q is what the custom tools of the skill %s become; give yours another name", CustomServer, name))
		}
		fmt.Fprintln(sum, c.Hash)
		d.Carried = append(d.Carried, c)
	}
	d.Hash = hex.EncodeToString(sum.Sum(nil))
	return problems
}

// carried renders a skill that an agent has from the start, as the i-th.
func (d Definition) carried(ctx context.Context, f Facts, i int) Rendered {
	dir := ""
	if i < len(f.Carried) {
		dir = f.Carried[i]
	}
	f.Input, f.Inputs, f.FocusFile, f.SkillDir, f.Carried, f.Memory = "", nil, "", dir, nil, ""
	d.Template = "" // it makes a message, which is the agent's
	told := d.Render(ctx, f)
	told.Instructions = "# Skill " + d.Name + "\n\n" + told.Instructions
	return told
}
