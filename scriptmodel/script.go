package scriptmodel

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"
)

// Script says what the model answers. It is never changed after it is parsed.
type Script struct {
	Usage Usage  `yaml:"usage"` // for the counts that a turn leaves out
	Rules []Rule `yaml:"rules"`
}

// Rule answers the requests that it matches, one turn for each.
type Rule struct {
	Name   string `yaml:"name"`   // empty means "rule N", counted from 1
	When   Match  `yaml:"when"`   // zero matches every request
	Repeat bool   `yaml:"repeat"` // start over after the last turn
	Turns  []Turn `yaml:"turns"`
}

// Match is what must hold for a rule to answer. A zero field always holds.
type Match struct {
	Model      *Regexp  `yaml:"model"`
	System     *Regexp  `yaml:"system"`
	User       *Regexp  `yaml:"user"`
	Turn       int      `yaml:"turn"`
	ToolResult *bool    `yaml:"tool_result"`
	Tools      []string `yaml:"tools"`
}

// Turn is one answer of the model.
type Turn struct {
	Thinking  *Template     `yaml:"thinking"`
	Signature string        `yaml:"signature"`
	Text      *Template     `yaml:"text"`
	Tools     []ToolCall    `yaml:"tools"`
	Blocks    []Value       `yaml:"blocks"`
	Stop      string        `yaml:"stop"` // empty means tool_use with tool calls, else end_turn
	Usage     Usage         `yaml:"usage"`
	Wait      time.Duration `yaml:"wait"`
	Delay     time.Duration `yaml:"delay"`
	Chunk     int           `yaml:"chunk"` // characters; zero means 24
	Endless   bool          `yaml:"endless"`
	Fail      *Fail         `yaml:"fail"`
}

// ToolCall asks the client to run a tool.
type ToolCall struct {
	Name  string `yaml:"name"`
	ID    string `yaml:"id"` // empty means one made from the request
	Input Value  `yaml:"input"`
}

// Usage is the token counts that an answer reports. A count that neither the
// turn nor the script gives is estimated for input and output, and zero for
// the rest.
type Usage struct {
	Input         *int `yaml:"input_tokens"`
	Output        *int `yaml:"output_tokens"`
	CacheRead     *int `yaml:"cache_read_input_tokens"`
	CacheCreation *int `yaml:"cache_creation_input_tokens"`
}

// Fail is how a turn goes wrong. Exactly one of Status and the three After
// fields is set.
type Fail struct {
	Times          int           `yaml:"times"` // per request; zero means always
	Status         int           `yaml:"status"`
	RetryAfter     time.Duration `yaml:"retry_after"`
	Type           string        `yaml:"type"`    // empty means what the status stands for
	Message        string        `yaml:"message"` // empty means a fixed text
	DropAfter      *int          `yaml:"drop_after"`
	MalformedAfter *int          `yaml:"malformed_after"`
	ErrorAfter     *int          `yaml:"error_after"`
}

// ScriptError says where a script is wrong.
type ScriptError struct {
	Name         string // the file, or what the script was called
	Line, Column int    // from 1; 0 when the script as a whole is wrong
	Err          error
}

func (e *ScriptError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.Name, e.Err)
	}
	return fmt.Sprintf("%s:%d:%d: %v", e.Name, e.Line, e.Column, e.Err)
}

func (e *ScriptError) Unwrap() error { return e.Err }

// LoadScript reads the script in the file at path.
func LoadScript(path string) (*Script, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading script: %w", err)
	}
	return ParseScript(path, data)
}

// ParseScript reads a script. The name stands for it in errors, which are
// *ScriptError.
func ParseScript(name string, data []byte) (*Script, error) {
	var s Script
	if err := decodeYAML(name, data, &s); err != nil {
		return nil, err
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		if r.Name == "" {
			r.Name = fmt.Sprintf("rule %d", i+1)
		}
		if err := checkTurns(r.Turns); err != nil {
			return nil, &ScriptError{Name: name, Err: fmt.Errorf("%s: %w", r.Name, err)}
		}
	}
	return &s, nil
}

// Echo returns the script of a model that repeats the prompt.
func Echo() *Script {
	s, err := ParseScript("echo", []byte(`rules: [{name: echo, repeat: true, turns: [{text: "You said: {{.Prompt}}"}]}]`))
	if err != nil {
		panic(err) // the text above is fixed
	}
	return s
}

func parseTurns(name string, data []byte) ([]Turn, error) {
	var turns []Turn
	if err := decodeYAML(name, data, &turns); err != nil {
		return nil, err
	}
	if err := checkTurns(turns); err != nil {
		return nil, &ScriptError{Name: name, Err: err}
	}
	return turns, nil
}

func checkTurns(turns []Turn) error {
	if len(turns) == 0 {
		return errors.New("there are no turns")
	}
	for i := range turns {
		if err := turns[i].check(); err != nil {
			return fmt.Errorf("turn %d: %w", i+1, err)
		}
	}
	return nil
}

func (t *Turn) check() error {
	for _, call := range t.Tools {
		if call.Name == "" {
			return errors.New("a tool call has no name")
		}
	}
	if t.Wait < 0 || t.Delay < 0 || t.Chunk < 0 {
		return errors.New("wait, delay and chunk cannot be negative")
	}
	if t.Endless && t.Text == nil {
		return errors.New("endless needs a text to repeat")
	}
	f := t.Fail
	if f == nil {
		return nil
	}
	ways := 0
	for _, set := range []bool{f.Status != 0, f.DropAfter != nil, f.MalformedAfter != nil, f.ErrorAfter != nil} {
		if set {
			ways++
		}
	}
	if ways != 1 {
		return errors.New("fail needs exactly one of status, drop_after, malformed_after, error_after")
	}
	if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
		return fmt.Errorf("fail status %d is not an error status (400 to 599)", f.Status)
	}
	if f.Times < 0 || f.RetryAfter < 0 {
		return errors.New("fail times and retry_after cannot be negative")
	}
	return nil
}

// Regexp is a regular expression in a script.
type Regexp struct{ *regexp.Regexp }

// UnmarshalYAML compiles the expression.
func (r *Regexp) UnmarshalYAML(node *yaml.Node) (err error) {
	r.Regexp, err = regexp.Compile(node.Value)
	return err
}
