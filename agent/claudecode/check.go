package claudecode

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dfaf701a/nestor/claude"
)

// checkTime is how long the CLI may take to say its version.
const checkTime = 900 * time.Millisecond

// Check tells whether the CLI is there, is new enough, and has a login. It looks
// at what the CLI, 2.1.325, looks at: the environment that it would be given,
// the credentials file and the settings in its config folder, and its global
// config.
//
// It does not know whether a login still holds, only that there is one. What
// macOS keeps in the keychain it cannot see: there an account in the global
// config counts. Settings of an organization or of a project are not looked at.
func (p *Provider) Check(ctx context.Context) bool {
	ctx, stop := context.WithTimeout(ctx, checkTime)
	defer stop()
	path := p.opts.Path
	if path == "" {
		var err error
		if path, err = claude.Find(); err != nil {
			return false
		}
	}
	version, err := claude.Version(ctx, path)
	return err == nil && claude.Supported(version) && login{env: p.env, goos: runtime.GOOS}.found()
}

// env returns a variable as the CLI of an agent sees it.
func (p *Provider) env(name string) string {
	value := ""
	if !slices.Contains(keys, name) {
		value = os.Getenv(name)
	}
	for _, kv := range p.opts.Env {
		if key, v, _ := strings.Cut(kv, "="); key == name {
			value = v
		}
	}
	return value
}

// login is where the CLI looks for credentials.
type login struct {
	env  func(name string) string
	goos string
}

// loginVariables each are a credential, or say that another service has it.
var loginVariables = []string{
	"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN",
	"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY",
}

func (l login) found() bool {
	for _, name := range loginVariables {
		if l.env(name) != "" {
			return true
		}
	}
	home := l.env("HOME")
	if l.goos == "windows" {
		home = l.env("USERPROFILE")
	}
	dir, global := filepath.Join(home, ".claude"), filepath.Join(home, ".claude.json")
	if other := l.env("CLAUDE_CONFIG_DIR"); other != "" {
		dir, global = other, filepath.Join(other, ".claude.json")
	}
	return has(filepath.Join(dir, ".credentials.json"), "claudeAiOauth") ||
		has(filepath.Join(dir, "settings.json"), "apiKeyHelper") ||
		has(global, "primaryApiKey") ||
		l.goos == "darwin" && has(global, "oauthAccount")
}

// has tells whether the file holds a JSON object with something under key.
func has(file, key string) bool {
	data, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil {
		return false
	}
	switch string(object[key]) {
	case "", "null", `""`, "{}":
		return false
	}
	return true
}
