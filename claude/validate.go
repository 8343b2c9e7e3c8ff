package claude

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// validate returns what is wrong with the options, all of it at once. Each
// error names the fields and the way out.
func (o *Options) validate(goos string) error {
	errs := slices.Concat(
		o.checkPermissions(),
		o.checkSession(goos),
		o.checkPrompt(),
		o.checkLimits(),
		o.checkLists(),
	)
	return errors.Join(errs...)
}

// badOption says what is wrong with a field.
func badOption(format string, args ...any) error {
	return fmt.Errorf("options: "+format, args...)
}

func (o *Options) checkPermissions() (errs []error) {
	asks := o.CanUseTool != nil || o.OnQuestion != nil
	if asks && o.PermissionPromptTool != "" {
		errs = append(errs, badOption("PermissionPromptTool and CanUseTool (or OnQuestion) answer the same requests: set one"))
	}
	if asks && o.DenyPrompts {
		errs = append(errs, badOption("DenyPrompts denies what CanUseTool and OnQuestion would answer: unset one"))
	}
	if o.PermissionMode == ModeBypass && !o.AllowBypass {
		errs = append(errs, badOption("PermissionMode ModeBypass needs AllowBypass"))
	}
	if len(o.DialogKinds) > 0 && o.OnDialog == nil {
		errs = append(errs, badOption("DialogKinds needs OnDialog to answer them"))
	}
	return errs
}

func (o *Options) checkSession(goos string) (errs []error) {
	goesOn := o.Resume != "" || o.Continue
	if o.Resume != "" && o.Continue {
		errs = append(errs, badOption("Resume and Continue each name a conversation: set one"))
	}
	if o.SessionID != "" && goesOn && !o.Fork {
		errs = append(errs, badOption("SessionID is for a new conversation: with Resume or Continue it needs Fork"))
	}
	if o.Fork && !goesOn {
		errs = append(errs, badOption("Fork needs Resume or Continue to say what to copy"))
	}
	if o.Store != nil && o.NoPersistence {
		errs = append(errs, badOption("Store copies what the CLI writes: with NoPersistence there is nothing to copy"))
	}
	if o.Store != nil && o.FileCheckpoints {
		errs = append(errs, badOption("Store and FileCheckpoints exclude each other: a store does not keep files"))
	}
	if _, lists := o.Store.(SessionLister); o.Store != nil && o.Continue && !lists {
		errs = append(errs, badOption("Continue needs a Store that lists its sessions: it does not implement SessionLister; set Resume"))
	}
	if goos != "windows" {
		return errs
	}
	values := map[string]string{"Resume": o.Resume, "SessionID": o.SessionID, "ResumeAt": o.ResumeAt}
	if o.ResumeDropsTurn != nil {
		values["ResumeDropsTurn"] = *o.ResumeDropsTurn
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		// A batch file somewhere on the way would run what follows.
		if strings.ContainsAny(values[name], "&|<>^%!\"\r\n") {
			errs = append(errs, badOption("%s %q has a character that Windows shells act on", name, values[name]))
		}
	}
	return errs
}

func (o *Options) checkPrompt() (errs []error) {
	p := o.SystemPrompt
	forms := 0
	for _, set := range []bool{p.Text != "", p.Blocks != nil, p.File != "", p.ClaudeCode} {
		if set {
			forms++
		}
	}
	if forms > 1 {
		errs = append(errs, badOption("SystemPrompt has one form: set Text, Blocks, File or ClaudeCode"))
	}
	if (p.Append != "" || p.ExcludeDynamic) && !p.ClaudeCode {
		errs = append(errs, badOption("SystemPrompt.Append and ExcludeDynamic change Claude Code's own prompt: set ClaudeCode"))
	}
	if o.Schema != nil && !isObject(o.Schema) {
		errs = append(errs, badOption("Schema is not a JSON object: %.80q", o.Schema))
	}
	if o.ManagedSettings != nil && !isObject(o.ManagedSettings) {
		errs = append(errs, badOption("ManagedSettings is not a JSON object: %.80q", o.ManagedSettings))
	}
	return errs
}

func (o *Options) checkLimits() (errs []error) {
	limits := map[string]float64{
		"MaxTurns":        float64(o.MaxTurns),
		"MaxBudgetUSD":    o.MaxBudgetUSD,
		"TaskBudget":      float64(o.TaskBudget),
		"MaxLine":         float64(o.MaxLine),
		"InitTimeout":     o.InitTimeout.Seconds(),
		"Grace":           o.Grace.Seconds(),
		"Thinking.Budget": float64(o.Thinking.Budget),
	}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if n := limits[name]; n < 0 || math.IsNaN(n) || math.IsInf(n, 0) {
			errs = append(errs, badOption("%s is %v: zero means the default", name, n))
		}
	}
	if o.Thinking.Budget > 0 && o.Thinking.Mode != ThinkingEnabled {
		errs = append(errs, badOption("Thinking.Budget goes with ThinkingEnabled"))
	}
	if o.Thinking.Display != "" && o.Thinking.Mode != ThinkingEnabled && o.Thinking.Mode != ThinkingAdaptive {
		errs = append(errs, badOption("Thinking.Display goes with ThinkingAdaptive or ThinkingEnabled"))
	}
	if slices.Contains(o.FallbackModels, o.Model) && o.Model != "" {
		errs = append(errs, badOption("FallbackModels holds Model %q itself: name another", o.Model))
	}
	return errs
}

func (o *Options) checkLists() (errs []error) {
	for _, kv := range o.Env {
		if strings.IndexByte(kv, '=') < 1 || strings.ContainsRune(kv, 0) {
			errs = append(errs, badOption("Env has %q, which is not K=V", kv))
		}
	}
	errs = append(errs, checkNames("Tools", o.Tools)...)
	errs = append(errs, checkNames("Betas", o.Betas)...)
	errs = append(errs, checkNames("FallbackModels", o.FallbackModels)...)
	if o.Skills != nil && o.AllSkills {
		errs = append(errs, badOption("Skills and AllSkills exclude each other: set one"))
	}
	for _, name := range o.Skills {
		if err := checkSkill(name); err != nil {
			errs = append(errs, badOption("Skills: %w", err))
		}
	}
	for i, p := range o.Plugins {
		if p.Path == "" {
			errs = append(errs, badOption("Plugins[%d].Path is not set", i))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.MCPServers)) {
		if err := checkServer(name, o.MCPServers[name]); err != nil {
			errs = append(errs, badOption("%w", err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Agents)) {
		agent := o.Agents[name]
		if err := agent.check(); err != nil {
			errs = append(errs, badOption("Agents[%q]: %w", name, err))
		}
	}
	return errs
}

// checkNames refuses what would become another list: the CLI is given the
// names joined by commas.
func checkNames(field string, names []string) (errs []error) {
	for _, name := range names {
		if strings.TrimSpace(name) == "" || strings.Contains(name, ",") {
			errs = append(errs, badOption("%s has %q: give one name for each element", field, name))
		}
	}
	return errs
}

// warnings returns advice about options that are allowed and do not do what
// they seem to do.
func (o *Options) warnings() []string {
	if o.CanUseTool == nil {
		return nil
	}
	if o.PermissionMode == ModeBypass {
		return []string{"CanUseTool is hardly ever called: PermissionMode ModeBypass decides first; use GateEveryCall to see every call"}
	}
	var whole []string
	for _, rule := range o.approved() {
		rule = strings.TrimSpace(rule)
		if wholeTool(rule) && !slices.Contains(whole, rule) {
			whole = append(whole, rule)
		}
	}
	if whole == nil {
		return nil
	}
	return []string{"CanUseTool is not called for what AutoApprove (or AllSkills) lets pass: " + strings.Join(whole, ", ") + "; use GateEveryCall to see every call"}
}

// wholeTool tells whether a rule is about every call of a tool: "Read",
// "Read()" or "Read(*)", but not "Bash(git *)".
func wholeTool(rule string) bool {
	name, content, scoped := strings.Cut(strings.TrimSpace(rule), "(")
	if name == "" || strings.Contains(name, ")") {
		return false
	}
	return !scoped || content == ")" || content == "*)"
}
