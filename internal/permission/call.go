package permission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Call is a call of a tool, by Claude Code's names and with its inputs. Tools of
// an MCP server are called mcp__server__tool.
type Call struct {
	Tool  string
	Input json.RawMessage // empty is as good as {}
	Dir   string          // absolute: what relative paths are relative to
}

// kind is what a tool is about.
type kind int8

const (
	unknown kind = iota // a newer CLI's, or a host's own: it may be about anything
	mcp
	inner // it touches nothing but the session
	read
	edit
	shell
	fetch
	search
	spawn
)

// kinds are the tools that Claude Code has or had, as of 2.1.325. What is not
// here, such as CronCreate and Workflow, is unknown: nothing but a rule that
// names it or a person allows it.
var kinds = map[string]kind{
	"Read": read, "Glob": read, "Grep": read, "LS": read, "NotebookRead": read,
	"Edit": edit, "Write": edit, "MultiEdit": edit, "NotebookEdit": edit,
	"Bash": shell, "Monitor": shell, "PowerShell": shell,
	"WebFetch": fetch, "WebSearch": search,
	"Task": spawn, "Agent": spawn,
	"TodoWrite": inner, "TodoRead": inner, "TaskCreate": inner, "TaskGet": inner, "TaskList": inner, "TaskUpdate": inner,
	"TaskOutput": inner, "TaskStop": inner, "BashOutput": inner, "KillShell": inner, "KillBash": inner, "AgentOutputTool": inner,
	"EnterPlanMode": inner, "ExitPlanMode": inner, "ToolSearch": inner, "StructuredOutput": inner, "ListAgents": inner,
}

func kindOf(tool string) kind {
	if strings.HasPrefix(tool, "mcp__") {
		return mcp
	}
	return kinds[tool]
}

// pathKeys are where tools about files name theirs.
var pathKeys = map[string]string{
	"Read": "file_path", "Edit": "file_path", "Write": "file_path", "MultiEdit": "file_path",
	"NotebookRead": "notebook_path", "NotebookEdit": "notebook_path",
	"Glob": "path", "Grep": "path", "LS": "path",
}

// Target is what a call is about, as far as rules can tell. What is empty, the
// call is not about, or nobody can tell.
type Target struct {
	Tool    string
	Command string // of Bash
	Path    string // absolute
	Host    string
	Agent   string // of Task and Agent, or the skill of Skill
	Dir     string // absolute: what relative patterns of rules are relative to

	seen *variety // of Command, once it was looked through
}

// subject is a call that was read.
type subject struct {
	Target
	kind       kind
	line       line     // of shell
	hosts      []string // of search: what it is bounded to
	unconfined bool     // of shell: it wants to leave its sandbox
}

// look reads a call. What it cannot read is an error that says why.
func look(c Call) (subject, error) {
	s := subject{Target: Target{Tool: c.Tool, Dir: c.Dir}, kind: kindOf(c.Tool)}
	switch {
	case c.Tool == "":
		return s, errors.New("the call names no tool")
	case !filepath.IsAbs(c.Dir):
		return s, fmt.Errorf("the call's folder %q is not absolute", clip(c.Dir))
	}
	s.Dir = filepath.Clean(c.Dir)
	in, err := fieldsOf(c.Input)
	if err == nil && s.kind != mcp && s.kind != unknown {
		err = in.plain()
	}
	if err != nil {
		return s, fmt.Errorf("the input of %s: %w", clip(c.Tool), err)
	}
	switch s.kind {
	case read, edit:
		s.Path, err = in.path(c.Tool, s.Dir)
	case shell:
		err = s.readCommand(in)
	case fetch:
		s.Host, err = in.host("url")
	case search:
		s.hosts, err = in.texts("allowed_domains")
	case spawn:
		s.Agent, _, err = in.text("subagent_type")
	}
	if c.Tool == "Skill" {
		s.Agent, _, err = in.text("skill")
	}
	if err != nil {
		return s, fmt.Errorf("the input of %s: %w", c.Tool, err)
	}
	return s, nil
}

func (s *subject) readCommand(in fields) (err error) {
	var given bool
	if s.Command, given, err = in.text("command"); err != nil {
		return err
	}
	if s.Command = trim(s.Command); !given || s.Command == "" {
		return errors.New(`it has no "command"`)
	}
	if raw, ok := in["dangerouslyDisableSandbox"]; ok && string(raw) != "false" && string(raw) != "null" {
		s.unconfined = true
	}
	s.line, s.seen = parseLine(s.Command), varietyOf(s.Command)
	return nil
}

// fields are those of an input.
type fields map[string]json.RawMessage

// maxInput bounds an input that is looked at.
const maxInput = 64 << 20

// fieldsOf reads an input. A name that is there twice is an error: who makes the
// call could read the other one.
func fieldsOf(input json.RawMessage) (fields, error) {
	if len(bytes.TrimSpace(input)) == 0 {
		return fields{}, nil
	}
	if len(input) > maxInput {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(input), maxInput)
	}
	errNone := errors.New("it is not a JSON object")
	d := json.NewDecoder(bytes.NewReader(input))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errNone
	}
	in := fields{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, errNone
		}
		name := t.(string) // of an object, nothing else stands here
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, errNone
		}
		if _, twice := in[name]; twice {
			return nil, fmt.Errorf("%q stands in it twice", clip(name))
		}
		in[name] = bytes.TrimSpace(value)
	}
	if _, err := d.Token(); err != nil {
		return nil, errNone
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something stands behind the JSON object")
	}
	return in, nil
}

// decisive are the fields by which calls are judged.
var decisive = []string{"file_path", "notebook_path", "path", "pattern", "command", "url", "allowed_domains", "subagent_type", "skill",
	"dangerouslyDisableSandbox"}

// plain refuses names that some readers of JSON, such as Go's, take for one by
// which calls are judged.
func (in fields) plain() error {
	for name := range in {
		for _, known := range decisive {
			if name != known && strings.EqualFold(name, known) {
				return fmt.Errorf("%q stands in it, which may be read as %q", clip(name), known)
			}
		}
	}
	return nil
}

// text returns a field, and whether it is there. A null is as good as nothing.
func (in fields) text(key string) (text string, given bool, err error) {
	raw, ok := in[key]
	if !ok || string(raw) == "null" {
		return "", false, nil
	}
	if raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return "", false, fmt.Errorf("%q is not a text", key)
	}
	if strings.ContainsRune(text, 0) {
		return "", false, fmt.Errorf("%q holds a zero byte", key)
	}
	return text, true, nil
}

func (in fields) texts(key string) (list []string, err error) {
	if raw, ok := in[key]; ok && json.Unmarshal(raw, &list) != nil {
		return nil, fmt.Errorf("%q is not a list of texts", key)
	}
	return list, nil
}

// path returns the file or folder that a call of tool is about.
func (in fields) path(tool, dir string) (string, error) {
	key := pathKeys[tool]
	name, given, err := in.text(key)
	switch {
	case err != nil:
		return "", err
	case given && name != "":
		if name, err = resolve(name, dir); err != nil {
			return "", err
		}
	case key == "path": // it looks around where it is
		name = dir
	default:
		return "", fmt.Errorf("it has no %q", key)
	}
	if tool != "Glob" {
		return name, nil
	}
	pattern, _, err := in.text("pattern")
	if err != nil {
		return "", err
	}
	base, err := globBase(pattern, name)
	if err == nil && given && !within(name, base) {
		err = fmt.Errorf("the pattern %q leaves %q", clip(pattern), clip(name))
	}
	return base, err
}

// resolve returns the path that name means in dir, without following links.
func resolve(name, dir string) (string, error) {
	if strings.HasPrefix(name, "~") {
		return "", fmt.Errorf("the path %q: nobody knows here whose home that is; write the whole path", clip(name))
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("the path %q holds a control character", clip(name))
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	return filepath.Clean(name), nil
}

// globBase returns the folder that everything lies below that pattern fits in
// dir.
func globBase(pattern, dir string) (string, error) {
	pattern = filepath.ToSlash(pattern)
	alternatives := strings.FieldsFunc(pattern, func(r rune) bool { return strings.ContainsRune("/{},|()", r) })
	meta := strings.IndexAny(pattern, `*?[{(!\`)
	if meta >= 0 && slices.Contains(alternatives, "..") || strings.Contains(pattern, "{/") || strings.Contains(pattern, ",/") {
		return "", fmt.Errorf("the pattern %q may leave its folder; give that folder as \"path\"", clip(pattern))
	}
	if meta >= 0 {
		pattern = pattern[:strings.LastIndex(pattern[:meta], "/")+1]
	}
	if pattern == "" {
		return dir, nil
	}
	return resolve(filepath.FromSlash(pattern), dir)
}

// host returns the host of the URL in a field.
func (in fields) host(key string) (string, error) {
	text, given, err := in.text(key)
	if err != nil {
		return "", err
	}
	if !given {
		return "", fmt.Errorf("it has no %q", key)
	}
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("%q has no host; write it as https://example.com/page", clip(text))
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%q is of the scheme %q; only http and https are fetched", clip(text), u.Scheme)
	}
	if u.User != nil || strings.ContainsAny(text, "\\\t\n\r") {
		return "", fmt.Errorf("the host of %q can be read in two ways; write it as https://example.com/page", clip(text))
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-_:") != "" {
		return "", fmt.Errorf("the host %q has letters that may become others; write it in ASCII, as xn--…", clip(host))
	}
	return host, nil
}
