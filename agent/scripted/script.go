package scripted

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/internal/yamltree"
)

// maxScript bounds a script.
const maxScript = 1 << 20

// node is what the parts of a script are read from.
type node = yamltree.Node

// Load reads the script in a file. See the package comment for what it holds.
func Load(file string) ([]Turn, error) {
	info, err := os.Stat(file) // first: to open a pipe would wait for its writer
	if err != nil {
		return nil, fmt.Errorf("reading script: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("reading script: %s is no regular file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading script: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxScript+1))
	if err != nil {
		return nil, fmt.Errorf("reading script: %w", err)
	}
	return Parse(file, data)
}

// Parse reads a script. The name stands for it in errors, which tell all that is
// wrong, each with its line and column.
func Parse(name string, data []byte) ([]Turn, error) {
	root, err := yamltree.Parse(name, data, maxScript)
	if err != nil {
		return nil, err
	}
	var turns []Turn
	if err := root.Each(map[string]func(*node) error{"turns": yamltree.Into(&turns, readTurns)}); err != nil {
		return nil, err
	}
	if len(turns) == 0 {
		return nil, root.Errorf("there are no turns; begin with turns: [{say: [{text: hello}]}]")
	}
	return turns, nil
}

func readTurns(n *node) ([]Turn, error) {
	all := 0 // line of a turn that answers everything
	return yamltree.All(func(n *node) (Turn, error) {
		t, err := readTurn(n)
		if err == nil && all > 0 {
			err = n.Errorf("this turn is never played: the one in line %d has no when, and answers everything", all)
		}
		if err == nil && t.When == nil {
			all = n.Line()
		}
		return t, err
	})(n)
}

func readTurn(n *node) (Turn, error) {
	t := Turn{Result: &Result{}}
	r := t.Result
	err := n.Each(map[string]func(*node) error{
		"when":        yamltree.Into(&t.When, readPattern),
		"say":         yamltree.Into(&t.Say, yamltree.All(readLine)),
		"cost_usd":    yamltree.Into(&r.CostUSD, (*node).Amount),
		"usage":       yamltree.Into(&r.Usage, readUsage),
		"structured":  yamltree.Into(&r.Structured, (*node).Any),
		"fail":        yamltree.Into(&t.Fail, readFail),
		"hang":        yamltree.Into(&t.Hang, (*node).Bool),
		"usage_limit": yamltree.Into(&t.UsageLimit, readUsageLimit),
	})
	if err != nil {
		return t, err
	}
	if t.Hang && t.Fail != nil {
		return t, n.Errorf("a turn that hangs has no end to fail at; remove hang or fail")
	}
	if t.Hang && len(t.Say) > 0 && took(t.Say) == 0 {
		return t, n.Errorf("this turn would say its lines without a pause and without end; give one of them an after, such as after: 1s")
	}
	return t, nil
}

// took returns how long it takes to say the lines.
func took(lines []Line) (d time.Duration) {
	for _, l := range lines {
		d += l.After
		if l.Tool != nil {
			d += l.Tool.After
		}
	}
	return d
}

func readPattern(n *node) (*regexp.Regexp, error) {
	text, err := n.Text()
	if err != nil {
		return nil, err
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, n.Errorf("%w; see https://pkg.go.dev/regexp/syntax", err)
	}
	return re, nil
}

func readLine(n *node) (Line, error) {
	var l Line
	ways := 0
	text := func(n *node) (err error) {
		ways++
		l.Content, err = n.Text()
		return err
	}
	err := n.Each(map[string]func(*node) error{
		"text": text,
		"thinking": func(n *node) error {
			l.Thinking = true
			return text(n)
		},
		"tool": func(n *node) error {
			ways++
			t, err := readTool(n)
			l.Tool = &t
			return err
		},
		"call": func(n *node) error {
			ways++
			t, err := readCall(n)
			l.Tool = &t
			return err
		},
		"after": yamltree.Into(&l.After, (*node).Duration),
	})
	if err == nil && ways != 1 {
		err = n.Errorf("a line is one of text, thinking, tool and call")
	}
	return l, err
}

// readInput returns what reads the input of a tool.
func readInput(input *map[string]any) func(*node) error {
	return func(n *node) error {
		value, err := n.Any()
		if err != nil {
			return err
		}
		var ok bool
		if *input, ok = value.(map[string]any); !ok {
			return n.Errorf("want the input of a tool, such as {command: ls}, got %s", n.What())
		}
		return nil
	}
}

func readCall(n *node) (Tool, error) {
	t := Tool{Call: true}
	err := n.Each(map[string]func(*node) error{
		"name":  yamltree.Into(&t.Name, (*node).Text),
		"input": readInput(&t.Input),
		"after": yamltree.Into(&t.After, (*node).Duration),
	})
	if _, _, ok := splitTool(t.Name); err == nil && !ok {
		err = n.Errorf("name is %.60q: want the tool of an MCP server, such as mcp__server__tool", t.Name)
	}
	return t, err
}

func readTool(n *node) (Tool, error) {
	var t Tool
	err := n.Each(map[string]func(*node) error{
		"name":   yamltree.Into(&t.Name, (*node).Text),
		"input":  readInput(&t.Input),
		"result": yamltree.Into(&t.Result, (*node).Text),
		"error":  yamltree.Into(&t.Error, (*node).Bool),
		"after":  yamltree.Into(&t.After, (*node).Duration),
	})
	if err == nil && t.Name == "" {
		err = n.Errorf("a tool needs a name")
	}
	return t, err
}

func readUsage(n *node) (u Usage, err error) {
	err = n.Each(map[string]func(*node) error{
		"input":       yamltree.Into(&u.Input, (*node).Count),
		"output":      yamltree.Into(&u.Output, (*node).Count),
		"cache_read":  yamltree.Into(&u.CacheRead, (*node).Count),
		"cache_write": yamltree.Into(&u.CacheWrite, (*node).Count),
	})
	return u, err
}

func readUsageLimit(n *node) (d time.Duration, err error) {
	err = n.Each(map[string]func(*node) error{"resets_in": yamltree.Into(&d, (*node).Duration)})
	if err == nil && d == 0 {
		err = n.Errorf("want when the limit is reset, such as {resets_in: 2s}")
	}
	return d, err
}

// readFail returns an *agent.Error.
func readFail(n *node) (error, error) {
	var status int
	var kind, message string
	err := n.Each(map[string]func(*node) error{
		"status":  yamltree.Into(&status, (*node).Count),
		"kind":    yamltree.Into(&kind, (*node).Text),
		"message": yamltree.Into(&message, (*node).Text),
	})
	if err != nil {
		return nil, err
	}
	if status != 0 && (status < 400 || status > 599) {
		return nil, n.Errorf("status %d is not that of an error; want 400 to 599", status)
	}
	if message == "" {
		message = "the script says so"
	}
	e := &agent.Error{Provider: Type, Status: status, Err: errors.New(message)}
	switch {
	case kind == "" && status == 0:
		return nil, n.Errorf("want how it fails: a status, such as 529, or a kind: api, auth or timeout")
	case kind == "auth" || kind == "" && (status == 401 || status == 403): // as provider sdk has it
		e.Kind = agent.ErrAuth
		if status == 0 {
			e.Status = 401
		}
	case kind == "api" || kind == "":
		e.Kind = agent.ErrAPI
	case kind == "timeout" && status == 0:
		e.Kind = agent.ErrTimeout
	case kind == "timeout":
		return nil, n.Errorf("what timed out has no status; remove it")
	default:
		return nil, n.Errorf("kind is %.60q: want api, auth or timeout", kind)
	}
	return e, nil
}
