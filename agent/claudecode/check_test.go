package claudecode

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/dfaf701a/nestor/claude"
)

func TestLogin(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string // besides HOME
		file string            // below the home
		text string
		goos string
		want bool
	}{
		{name: "nothing"},
		{name: "key", env: map[string]string{"ANTHROPIC_API_KEY": "k"}, want: true},
		{name: "token", env: map[string]string{"ANTHROPIC_AUTH_TOKEN": "k"}, want: true},
		{name: "OAuth token", env: map[string]string{"CLAUDE_CODE_OAUTH_TOKEN": "k"}, want: true},
		{name: "another service", env: map[string]string{"CLAUDE_CODE_USE_BEDROCK": "1"}, want: true},
		{name: "credentials", file: ".claude/.credentials.json", text: `{"claudeAiOauth":{"accessToken":"x"}}`, want: true},
		{name: "credentials of a logout", file: ".claude/.credentials.json", text: `{"claudeAiOauth":null}`},
		{name: "credentials for MCP servers", file: ".claude/.credentials.json", text: `{"mcpOAuth":{"a":1}}`},
		{name: "broken credentials", file: ".claude/.credentials.json", text: `{"claudeAiOauth":`},
		{name: "key helper", file: ".claude/settings.json", text: `{"apiKeyHelper":"/bin/key"}`, want: true},
		{name: "other settings", file: ".claude/settings.json", text: `{"model":"opus"}`},
		{name: "managed key", file: ".claude.json", text: `{"primaryApiKey":"sk"}`, want: true},
		{name: "account without credentials", file: ".claude.json", text: `{"oauthAccount":{"a":1}}`, goos: "linux"},
		{name: "account with a keychain", file: ".claude.json", text: `{"oauthAccount":{"a":1}}`, goos: "darwin", want: true},
		{name: "credentials elsewhere", file: "conf/.credentials.json", text: `{"claudeAiOauth":{"a":1}}`, env: map[string]string{"CLAUDE_CONFIG_DIR": "$HOME/conf"}, want: true},
		{name: "global config elsewhere", file: "conf/.claude.json", text: `{"primaryApiKey":"sk"}`, env: map[string]string{"CLAUDE_CONFIG_DIR": "$HOME/conf"}, want: true},
		{name: "credentials where it does not look", file: ".claude/.credentials.json", text: `{"claudeAiOauth":{"a":1}}`, env: map[string]string{"CLAUDE_CONFIG_DIR": "$HOME/conf"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			home := t.TempDir()
			if test.file != "" {
				write(t, filepath.Join(home, test.file), test.text)
			}
			env := func(name string) string {
				if name == "HOME" {
					return home
				}
				return os.Expand(test.env[name], func(string) string { return home })
			}
			if got := (login{env: env, goos: test.goos}).found(); got != test.want {
				t.Errorf("a login was found: %v, want %v", got, test.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	home := t.TempDir()
	for _, name := range append(loginVariables, "CLAUDE_CONFIG_DIR") {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	t.Setenv("ANTHROPIC_API_KEY", "inherited") // which the CLI is not given
	path := program(t, "2.1.325 (Claude Code)")
	check := func(want bool, why string, opts Options) {
		t.Helper()
		if got := New(opts).Check(t.Context()); got != want {
			t.Errorf("%s: %v, want %v", why, got, want)
		}
	}
	check(false, "no login", Options{Path: path})
	check(true, "a key that is given", Options{Path: path, Env: []string{"ANTHROPIC_API_KEY=k"}})
	check(true, "another home", Options{Path: path, Env: []string{"HOME=" + loggedIn(t)}})
	write(t, filepath.Join(home, ".claude", ".credentials.json"), `{"claudeAiOauth":{"accessToken":"x"}}`)
	check(true, "credentials", Options{Path: path})
	check(false, "no such CLI", Options{Path: filepath.Join(home, "nothing")})
	check(false, "an old CLI", Options{Path: program(t, "1.0.3 (Claude Code)")})
	check(false, "another program", Options{Path: program(t, "hello")})
	t.Setenv(claude.PathVariable, filepath.Join(home, "nothing"))
	check(false, "no CLI at all", Options{})
	t.Setenv(claude.PathVariable, path)
	check(true, "a CLI that is looked for", Options{})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if New(Options{}).Check(ctx) {
		t.Error("a context that has ended: true")
	}
}

// The real CLI takes what Check takes for a login, and says its version in time.
func TestLiveCheck(t *testing.T) {
	p, _, _ := live(t, echo)
	if !p.Check(bounded(t)) {
		t.Error("the real CLI with a key does not pass")
	}
}

// program returns a program that says its version. A fake CLI would be too slow:
// the race detector makes it wait for a second before it exits.
func program(t *testing.T, version string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "claude")
	write(t, file, "#!/bin/sh\necho '"+version+"'\n")
	if err := os.Chmod(file, 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

// loggedIn returns a home with a login.
func loggedIn(t *testing.T) string {
	home := t.TempDir()
	write(t, filepath.Join(home, ".claude", ".credentials.json"), `{"claudeAiOauth":{"accessToken":"x"}}`)
	return home
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
