package daemon

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/dfaf701a/nestor/agent/claudecode"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/permission"
	"github.com/dfaf701a/nestor/internal/runner"
)

// What a run's processes get of this process's environment. All else they are not
// told: keys and tokens of whoever started it are not theirs.
var (
	// baseVariables are what programs need to find themselves, and people.
	baseVariables = []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR", "TMPDIR",
		"XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "IS_SANDBOX",
	}
	windowsVariables = []string{
		"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH",
		"APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
	}
	// cliVariables are where the Claude CLI finds what is its own.
	cliVariables = []string{"CLAUDE_CONFIG_DIR"}
	// webVariables are how the web is reached.
	webVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}
	// authorVariables are who commits.
	authorVariables = []string{
		"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "EMAIL",
	}
	// gitVariables are what pushes and fetches.
	gitVariables = []string{
		"SSH_AUTH_SOCK", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS", "GH_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN",
	}
)

// environ returns what a run's processes get of this process's environment, also what
// makes its folder ready.
func (p *policy) environ(run runner.Run) ([]string, error) {
	o, err := api.ParseTaskOptions(run.Task.Data)
	if err != nil {
		return nil, err
	}
	role, err := p.bounds(run.Task, o, cmp.Or(run.Task.Dir, filepath.Dir(p.home)))
	if err != nil {
		return nil, err
	}
	return granted(os.Environ(), grants(role, cmp.Or(run.Task.Provider, p.provider), p.pass)), nil
}

// grants returns the names of the variables that a run gets; nil as the role means
// that it has none, which bounds nothing.
func grants(role *permission.Policy, provider string, pass []string) []string {
	names := slices.Concat(baseVariables, pass)
	if runtime.GOOS == "windows" {
		names = append(names, windowsVariables...)
	}
	if provider == claudecode.Type {
		names = append(names, cliVariables...)
	}
	if role == nil || role.Web || provider == claudecode.Type { // whose CLI speaks to the model
		names = append(names, webVariables...)
	}
	if role == nil || role.Git > permission.No {
		names = append(names, authorVariables...)
	}
	if role == nil || role.Git == permission.Yes {
		names = append(names, gitVariables...)
	}
	return names
}

// granted returns what is in an environment of the variables with these names; a *
// at the end of a name stands for anything. It is never nil.
func granted(env, names []string) []string {
	list := []string{}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if slices.ContainsFunc(names, func(want string) bool { return sameVariable(want, name) }) {
			list = append(list, kv)
		}
	}
	return list
}

func sameVariable(want, name string) bool {
	if runtime.GOOS == "windows" {
		want, name = strings.ToUpper(want), strings.ToUpper(name)
	}
	if prefix, any := strings.CutSuffix(want, "*"); any {
		return strings.HasPrefix(name, prefix)
	}
	return want == name
}
