package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/agentfile"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/plan"
	"github.com/dfaf701a/nestor/internal/runner"
	"github.com/dfaf701a/nestor/internal/toolserver"
)

// definition returns the definition that a run was submitted with; false if it has
// none.
func (w *worker) definition(ctx context.Context, o api.TaskOptions) (d agentfile.Definition, ok bool, err error) {
	if o.Agent == nil {
		return d, false, nil
	}
	data, err := w.log.Blob(ctx, o.Agent.Definition)
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	if err != nil {
		return d, false, fmt.Errorf("the definition of the agent: %w", err)
	}
	return d, true, nil
}

// brief returns what the definition of its agent makes of a run.
func (w *worker) brief(ctx context.Context, run runner.Run, place runner.Place, rights runner.Rights) (runner.Brief, error) {
	dir := place.Dir
	o, err := api.ParseTaskOptions(run.Task.Data)
	if err != nil {
		return runner.Brief{}, err
	}
	d, ok, err := w.definition(ctx, o)
	if err != nil || !ok {
		return runner.Brief{}, err
	}
	commands := toolserver.Options{Dir: dir, Env: slices.Concat(run.Env, run.Own, rights.Env), Wrap: rights.Wrap}
	memory := ""
	facts := agentfile.Facts{
		Input: run.Task.Input, Inputs: o.Inputs, Dir: dir, FocusFile: o.FocusFile, SkillDir: w.skillDir(d, run), Carried: w.carriedDirs(d, run), Now: time.Now(),
		Git: gitFacts(ctx, d, commands), Run: shell(rights, dir, commands),
	}
	if d.Memory != "" && len(place.Folders) > 0 {
		memory = place.Folders[0]
		facts.Memory = d.MemoryPrompt(memory)
	}
	if o.Agent.Resumed && o.Agent.First != "" {
		facts.Input = o.Agent.First
	}
	told := d.Render(ctx, facts)
	if o.Agent.Resumed { // what the text and the template made of the first input was said
		told.Message = run.Task.Input
	}
	b := runner.Brief{Instructions: told.Instructions, Message: told.Message, Metadata: map[string]any{
		"definition": map[string]any{"name": d.Name, "kind": d.Kind, "scope": d.Source.Scope, "file": d.Source.File, "sha256": d.Hash},
	}}
	if strings.TrimSpace(told.Message) == "" {
		return b, &nestor.Failure{Kind: nestor.Invalid, Message: fmt.Sprintf("agent %s needs a prompt: say what it is to do", run.Task.Agent)}
	}
	if told.Problem != nil {
		b.Metadata["template_error"] = told.Problem.Error()
	}
	if o.FocusFile != "" && !o.Agent.Resumed && !strings.Contains(d.Template+d.Prompt, ".FocusFile") {
		b.Message += "\n\nThis is about the file " + o.FocusFile + "."
	}
	if b.Servers, err = w.servers(d, run, rights.Tools, commands); err != nil {
		return b, err
	}
	if rights.Tools == nil {
		for name := range b.Servers {
			b.Approved = append(b.Approved, "mcp__"+name)
		}
	}
	if b.Denied, err = denied(d.DisallowedTools, dir); err != nil {
		return b, err
	}
	if elsewhere := memoryOnly(d.MemoryTools, memory, dir); elsewhere != nil {
		listed := b.Denied
		b.Denied = func(tool string, input json.RawMessage) bool {
			return elsewhere(tool, input) || listed != nil && listed(tool, input)
		}
	}
	b.Hooks, err = w.hooks(d, run, dir, commands)
	return b, err
}

// skillDir returns where the files of a skill are, for a run; empty for what is
// none.
func (w *worker) skillDir(d agentfile.Definition, run runner.Run) string {
	switch {
	case d.Kind != agentfile.Skill || d.Source.Dir == "":
		return ""
	case d.Source.Scope == agentfile.User:
		return filepath.Dir(d.Source.Path)
	case w.copies != nil:
		return filepath.Join(w.copies.where(run.ID, run.Attempt, ""), filepath.FromSlash(d.Source.Dir))
	}
	return filepath.Join(w.project, filepath.FromSlash(d.Source.Dir))
}

// carriedDirs returns where the files of the skills are that a definition carries.
func (w *worker) carriedDirs(d agentfile.Definition, run runner.Run) (dirs []string) {
	for _, s := range d.Carried {
		dirs = append(dirs, w.skillDir(s, run))
	}
	return dirs
}

// servers returns the MCP servers of a definition that have a tool among those
// that exist; nil means that all do. The custom tools of the skills that it
// carries are among its own.
func (w *worker) servers(d agentfile.Definition, run runner.Run, tools []string, o toolserver.Options) (map[string]agent.MCPServer, error) {
	exists := func(name string) bool {
		return tools == nil || slices.ContainsFunc(tools, func(rule string) bool {
			_, ok := permission.MeetRules(rule, name)
			return ok || strings.HasPrefix(rule, name+"__")
		})
	}
	all := map[string]agent.MCPServer{}
	for name, s := range d.MCPServers {
		if exists("mcp__" + name) {
			all[name] = agent.MCPServer{Command: s.Command, Args: s.Args, Env: s.Env, URL: s.URL, Headers: s.Headers}
		}
	}
	var custom []toolserver.Tool
	for _, from := range append([]agentfile.Definition{d}, d.Carried...) {
		skillDir := w.skillDir(from, run)
		for _, t := range from.CustomTools {
			if exists(t.ToolName()) {
				custom = append(custom, toolserver.Tool{
					Name: t.Name, Description: t.Description, InputSchema: t.InputSchema, Timeout: t.Timeout,
					Argv: func(input json.RawMessage) ([]string, error) { return t.Argv(input, skillDir) },
				})
			}
		}
	}
	if len(custom) > 0 {
		tools, err := toolserver.New(custom, o)
		if err != nil {
			return nil, fmt.Errorf("the custom tools of %s: %w", d.Source.File, err)
		}
		all[agentfile.CustomServer] = agent.MCPServer{Tools: tools}
	}
	return all, nil
}

// denied returns what tells which calls a definition's rules deny; nil if there
// are none.
func denied(rules []string, dir string) (func(tool string, input json.RawMessage) bool, error) {
	if len(rules) == 0 {
		return nil, nil
	}
	// All is allowed but what the rules deny.
	p := permission.Policy{
		Read: []string{"/"}, Write: []string{"/"}, Bash: permission.Yes, Git: permission.Yes, Web: true, Spawn: true,
		Grant: permission.Grant{Mode: permission.ModeBypass},
	}
	for _, text := range rules {
		rule, err := permission.ParseRule(text)
		if err != nil {
			return nil, err
		}
		p.Deny = append(p.Deny, rule)
	}
	return func(tool string, input json.RawMessage) bool {
		return strings.HasPrefix(p.Decide(permission.Call{Tool: tool, Input: input, Dir: dir}).Rule, "deny ")
	}, nil
}

const (
	maxShell     = 30 * time.Second // that a command of a text may take
	maxGit       = 5 * time.Second
	shellProgram = "bash"
)

// shell returns what runs the commands of a text, if the run may.
func shell(rights runner.Rights, dir string, o toolserver.Options) func(context.Context, agentfile.ShellCommand) (string, error) {
	return func(ctx context.Context, c agentfile.ShellCommand) (string, error) {
		if err := mayRun(rights, dir, c.Filled); err != nil {
			return "", err
		}
		o.Env = append(slices.Clip(o.Env), c.Env...)
		return toolserver.Run(ctx, append([]string{shellProgram, "-c", c.Line}, c.Args...), nil, maxShell, o)
	}
}

// mayRun fails for a command that the run could not run itself, without being
// asked.
func mayRun(rights runner.Rights, dir, line string) error {
	input, err := json.Marshal(map[string]string{"command": line})
	if err != nil {
		return err
	}
	if rights.Decide != nil {
		if v := rights.Decide("Bash", input); !v.Allowed {
			return fmt.Errorf("it is not allowed: %s", v.Reason)
		}
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	p := permission.Policy{
		Read: []string{dir}, Write: []string{dir}, Bash: permission.Yes, Git: permission.Yes, Web: true,
		Grant: permission.Grant{Mode: rights.Mode},
	}
	if rights.Tools == nil && rights.Decide != nil {
		return nil // the role has decided
	}
	for _, text := range rights.Tools {
		rule, err := permission.ParseRule(text)
		if err != nil {
			return err
		}
		p.Allow = append(p.Allow, rule)
	}
	if d := p.Decide(permission.Call{Tool: "Bash", Input: input, Dir: dir}); d.Verdict != permission.Allow {
		return fmt.Errorf("it is not allowed; allow it with allowed-tools: Bash(%s)", line)
	}
	return nil
}

// gitFacts asks git about the folder, if the definition wants to know.
func gitFacts(ctx context.Context, d agentfile.Definition, o toolserver.Options) (g agentfile.Git) {
	if !strings.Contains(d.Template+d.Prompt, ".Git") {
		return g
	}
	ask := func(args ...string) (string, bool) {
		o.Env = append(slices.Clip(o.Env), "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0")
		said, err := toolserver.Run(ctx, append([]string{"git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"}, args...), nil, maxGit, o)
		return strings.TrimSpace(said), err == nil
	}
	if root, ok := ask("rev-parse", "--show-toplevel"); ok {
		g.Root = root
		g.Branch, _ = ask("symbolic-ref", "--short", "-q", "HEAD")
		if commit, ok := ask("rev-parse", "--verify", "-q", "HEAD"); ok {
			g.Commit = commit
		}
		changed, _ := ask("status", "--porcelain", "-uno")
		g.Dirty = changed != ""
	}
	return g
}

// maxFailures is how many failures the metadata of a result tells.
const maxFailures = 20

// failure is one that a result tells of.
type failure struct {
	Attempt int         `json:"attempt"`
	Kind    nestor.Kind `json:"kind"`
	Message string      `json:"message"`
}

// explain puts every failure of a run into the metadata of its result: those of
// earlier attempts, which the log has, and that of this one.
func (w *worker) explain(ctx context.Context, run plan.Run, result *nestor.Result) {
	var list []failure
	attempt := 1
	if run.Retries > 0 {
		attempt = 0
		for e, err := range w.log.Read(ctx, eventlog.Filter{Root: string(run.Root), Run: string(run.ID)}, 0) {
			if err != nil {
				break
			}
			event, err := e.Decode()
			if err != nil {
				continue
			}
			switch event := event.(type) {
			case *nestor.ExecutionStart:
				attempt++
			case *nestor.ErrorEvent:
				list = append(list, failure{attempt, event.Kind, event.Message})
			}
		}
		attempt = max(attempt, 1)
	}
	if f := result.Error; f != nil && (len(list) == 0 || list[len(list)-1].Attempt != attempt) {
		list = append(list, failure{attempt, f.Kind, f.Message})
	}
	if len(list) == 0 {
		return
	}
	if result.Metadata == nil {
		result.Metadata = map[string]any{}
	}
	result.Metadata["failures"] = list[max(0, len(list)-maxFailures):]
}
