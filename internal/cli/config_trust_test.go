package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// untrusting returns env without the variable that trusts all.
func untrusting(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, trustVariable) })
}

func TestWhatNeedsTrust(t *testing.T) {
	for line, want := range map[string]bool{
		"providers.sdk.path: x": true, "providers.sdk.env.A: b": true, "providers.sdk.setting_sources: [project]": true,
		"providers.api.base_url: http://a": true, "providers.api.api_key_file: x": true, "broker.url: nats://a": true,
		"broker.credentials: x": true, "broker.listen: 127.0.0.1:1": true, "permission_mode: bypassPermissions": true,
		"permission_mode: auto": true, "tools: [Bash]": true,
		"workspace.setup: [make]": true, "workspace.approve: none": true, "workspace.approve: critic": false, "workspace.kind: plain": false, "env.pass: [SECRET]": true,
		"permission_mode: plan": false, "permission_mode: acceptEdits": false, "tools: []": false, "providers.scripted.script: x": false,
		"provider: api": false, "model: opus": false, "slots: 2": false, "limits.max_turns: 3": false, "labels: [a]": false,
	} {
		dir, env := configured(t, line+"\n", "")
		_, err := loadConfig(dir, untrusting(env), nil)
		if got := err != nil; got != want {
			t.Errorf("%s: %v", line, err)
		}
		dir, env = configured(t, "", line+"\n")
		if _, err := loadConfig(dir, untrusting(env), nil); err != nil {
			t.Errorf("%s in one's own file: %v", line, err)
		}
	}
}

// Each key has been thought about: a new one that names a file, an address or a
// variable needs trust, or a line here.
func TestKeysThatReachOutNeedTrust(t *testing.T) {
	harmless := []string{"providers.scripted.script", apiKeyKey} // it is played, not run; it is refused in a project
	for _, k := range configKeys() {
		switch k.in(defaultConfig()).(type) {
		case fileSetting, addressSetting, hostPortSetting, variableSetting:
			if k.trust == nil && !slices.Contains(harmless, k.name) {
				t.Errorf("%s needs no trust", k.name)
			}
		}
	}
}

func TestFingerprint(t *testing.T) {
	path, _ := findKey("providers.sdk.path")
	tools, _ := findKey("tools")
	a := fingerprint([]wish{{key: path, words: []string{"x"}, line: 1}, {key: tools, words: []string{"a", "b"}, line: 2}})
	b := fingerprint([]wish{{key: tools, words: []string{"a", "b"}, line: 7}, {key: path, words: []string{"x"}, line: 8}})
	if a != b {
		t.Error("the order matters")
	}
	for _, other := range [][]wish{
		{{key: path, words: []string{"y"}}, {key: tools, words: []string{"a", "b"}}},
		{{key: path, words: []string{"x"}}, {key: tools, words: []string{"ab"}}},
		{{key: path, words: []string{"x"}}, {key: tools, words: []string{`a","b`}}},
		{{key: path, words: []string{"x"}}},
	} {
		if fingerprint(other) == a {
			t.Errorf("%v is the same", other)
		}
	}
}

func TestTrustIsOfOnePath(t *testing.T) {
	dir, env := configured(t, "tools: [Bash]\n", "")
	env = untrusting(env)
	files, err := configFiles(dir, variables(env))
	if err != nil {
		t.Fatal(err)
	}
	_, wishes, err := examineConfig(dir, env, nil)
	if err != nil || len(wishes) != 1 {
		t.Fatalf("it wants %v, %v", wishes, err)
	}
	for path, want := range map[string]bool{filepath.Join(dir, "x"): false, files[1].path: true} {
		err := trusted{Projects: map[string]string{path: fingerprint(wishes)}}.write(trustFile(files))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := loadConfig(dir, env, nil); (err == nil) != want {
			t.Errorf("with trust in %s: %v", path, err)
		}
	}
	info, err := os.Stat(trustFile(files))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("it has the mode %v, %v", info.Mode(), err)
	}
}
