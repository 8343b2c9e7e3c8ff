package scriptmodel

import (
	"fmt"
	"slices"
)

// choice is the turn that answers a request.
type choice struct {
	rule string
	turn *Turn
	q    *quote
}

// choose finds the turn that answers c: of the script that the prompt
// carries, of the rules, or what is left of a script that an earlier prompt
// carried.
func (s *Script) choose(c *conversation) (*choice, error) {
	q := &quote{
		Model: c.body.Model, System: c.system, Prompt: c.last().text, Tools: c.tools,
		Turn: len(c.last().calls), ToolResults: c.toolResults(),
	}
	if n := len(q.ToolResults); n > 0 {
		q.ToolResult = q.ToolResults[n-1]
	}
	newest := len(c.prompts) - 1
	if turn, err := carriedTurn(c, newest); turn != nil || err != nil {
		return &choice{rule: "prompt", turn: turn, q: q}, err
	}
	if rule, turn := s.ruleTurn(c, q); turn != nil {
		return &choice{rule: rule, turn: turn, q: q}, nil
	}
	for i := newest - 1; i > 0; i-- {
		if turn, err := carriedTurn(c, i); turn != nil || err != nil {
			return &choice{rule: "prompt", turn: turn, q: q}, err
		}
	}
	return nil, fmt.Errorf("no rule of the script answers turn %d of the prompt %.200q", q.Turn, q.Prompt)
}

// carriedTurn returns the next turn of the script that prompt i carries, or
// nil if it carries none or all its turns were given.
func carriedTurn(c *conversation, i int) (*Turn, error) {
	f, ok := findFence(c.prompts[i].text)
	if !ok {
		return nil, nil
	}
	turns, err := parseTurns("script in the prompt", []byte(f.body))
	if err != nil {
		return nil, err
	}
	given := -1 // the call to answer is not given yet
	for _, p := range c.prompts[i:] {
		given += len(p.calls)
	}
	if given >= len(turns) {
		return nil, nil
	}
	return &turns[given], nil
}

// ruleTurn plays the calls since the prompt again: each is answered by the
// first rule that matches it and has a turn left. The last is the one asked.
func (s *Script) ruleTurn(c *conversation, q *quote) (name string, turn *Turn) {
	given := make([]int, len(s.Rules))
	fits := make([]bool, len(s.Rules))
	for i := range s.Rules {
		fits[i] = s.Rules[i].When.fits(c)
	}
	for n, call := range c.last().calls {
		turn = nil
		for i := range s.Rules {
			r := &s.Rules[i]
			if !fits[i] || !r.When.fitsCall(n+1, call) || (given[i] >= len(r.Turns) && !r.Repeat) {
				continue
			}
			name, turn = r.Name, &r.Turns[given[i]%len(r.Turns)]
			given[i]++
			if n == len(c.last().calls)-1 {
				r.When.capture(q)
			}
			break
		}
	}
	return name, turn
}

// fits tells whether all that stays the same from one prompt to the next holds.
func (m *Match) fits(c *conversation) bool {
	return m.Model.fits(c.body.Model) && m.System.fits(c.system) && m.User.fits(c.last().text) &&
		!slices.ContainsFunc(m.Tools, func(t string) bool { return !slices.Contains(c.tools, t) })
}

func (m *Match) fitsCall(n int, call call) bool {
	return (m.Turn == 0 || m.Turn == n) && (m.ToolResult == nil || *m.ToolResult == call.toolResult)
}

func (m *Match) capture(q *quote) {
	if m.User == nil {
		return
	}
	q.Match = m.User.FindStringSubmatch(q.Prompt)
	q.Named = map[string]string{}
	for i, name := range m.User.SubexpNames() {
		if name != "" {
			q.Named[name] = q.Match[i]
		}
	}
}

func (r *Regexp) fits(text string) bool { return r == nil || r.MatchString(text) }
