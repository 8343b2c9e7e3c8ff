package claude

import (
	"context"
	"encoding/json"
)

// RepoRootOptions is what [Session.RegisterRepoRoot] reads again.
type RepoRootOptions struct {
	ReloadClaudeMD bool
	ReloadPlugins  bool
	ReloadSkills   bool
}

// RegisterRepoRoot makes dir a folder that tools may use like the working
// directory. It must be below that, or below a folder that the session was
// started with; one that is registered already is a [*ControlError].
func (s *Session) RegisterRepoRoot(ctx context.Context, dir string, opts RepoRootOptions) error {
	return s.call(ctx, "register_repo_root", struct {
		Directory      string `json:"directory"`
		ReloadClaudeMD bool   `json:"reload_claude_md,omitempty"`
		ReloadPlugins  bool   `json:"reload_plugins,omitempty"`
		ReloadSkills   bool   `json:"reload_skills,omitempty"`
	}{dir, opts.ReloadClaudeMD, opts.ReloadPlugins, opts.ReloadSkills}, nil)
}

// ReloadPluginsOptions is how [Session.ReloadPlugins] goes about it.
type ReloadPluginsOptions struct {
	Add               []string // absolute folders of plugins to load as well
	HoldOnCacheImpact bool     // do nothing if it would make the prompt cache useless
	RefuseIfBusy      bool     // fail with Code "reload_plugins_busy" while the session works
}

// PluginReload is what a session has after it read its plugins again.
type PluginReload struct {
	Reply
	Commands    []SlashCommand    `json:"commands"`
	Agents      []AgentInfo       `json:"agents"`
	Plugins     []LoadedPlugin    `json:"plugins"`
	MCPServers  []MCPServerStatus `json:"mcpServers"`
	ErrorCount  int               `json:"error_count"`
	Held        *bool             `json:"held"`         // true if nothing was done; nil if it was not asked for or is not known
	CacheImpact json.RawMessage   `json:"cache_impact"` // what it would have changed; nil unless held
}

// LoadedPlugin is a plugin of a session.
type LoadedPlugin struct {
	Name    string `json:"name"`
	Path    string `json:"path"` // "builtin" for the CLI's own
	Source  string `json:"source"`
	Version string `json:"version"` // as the plugin says; empty if it does not
}

// ReloadPlugins reads the plugins again. It can take a while.
func (s *Session) ReloadPlugins(ctx context.Context, opts ReloadPluginsOptions) (*PluginReload, error) {
	type plugin struct {
		Type string `json:"type"`
		Path string `json:"path"`
	}
	var add []plugin
	for _, path := range opts.Add {
		add = append(add, plugin{"local", path})
	}
	return ask[PluginReload](ctx, s, "reload_plugins", struct {
		HoldOnCacheImpact bool     `json:"hold_on_cache_impact,omitempty"`
		AddPlugins        []plugin `json:"add_plugins,omitempty"`
		RefuseIfBusy      bool     `json:"refuse_if_busy,omitempty"`
	}{opts.HoldOnCacheImpact, add, opts.RefuseIfBusy})
}

// SkillList is the skills of a session.
type SkillList struct {
	Reply
	Skills []SlashCommand `json:"skills"`
}

// ReloadSkills reads the skills again.
func (s *Session) ReloadSkills(ctx context.Context) (*SkillList, error) {
	return ask[SkillList](ctx, s, "reload_skills", nil)
}

// ReloadOutputStyles reads the output styles again and returns their names.
func (s *Session) ReloadOutputStyles(ctx context.Context) ([]string, error) {
	type reply struct {
		Reply
		Styles []string `json:"available_output_styles"`
	}
	r, err := ask[reply](ctx, s, "reload_output_styles", nil)
	if err != nil {
		return nil, err
	}
	return r.Styles, nil
}
