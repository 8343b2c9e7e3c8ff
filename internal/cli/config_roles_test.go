package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestRolesInConfig(t *testing.T) {
	dir, env := configured(t, `
roles:
  docs-writer:
    read: project
    write: workspace
    web: yes
    hosts: [go.dev, "*.go.dev"]
    deny: ["Edit(*.go)"]
  careful: {extends: implementer, git: no}
role: careful
`, "roles.mine.bash: limited\n")
	c, err := loadConfig(dir, env, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := c.Roles["docs-writer"]
	if w.Read != "project" || w.Web != "yes" || !slices.Equal(w.Hosts, []string{"go.dev", "*.go.dev"}) || w.Deny[0] != "Edit(*.go)" || c.Roles["careful"].Extends != "implementer" || c.Roles["mine"].Bash != "limited" {
		t.Errorf("the roles are %+v", c.Roles)
	}
	if got := c.origin("roles.docs-writer.web"); got != "project .nestor/config.yaml:6" {
		t.Errorf("it comes from %q", got)
	}
}

func TestWrongRolesAreToldWithTheirPlace(t *testing.T) {
	for _, test := range []struct{ file, want string }{
		{"roles:\n  x:\n    raed: no\n", `.nestor/config.yaml:3:5: no key "roles.x.raed"; did you mean "roles.x.read"?`},
		{"roles: {x: {read: everything}}\n", `.nestor/config.yaml:1:19: roles.x.read is "everything": want workspace, logs, project or no`},
		{"roles: {x: {git: yes}}\n", `.nestor/config.yaml:1:13: role x: git: "yes" needs bash: yes`},
		{"roles: {x: {extends: implementr}}\n", `.nestor/config.yaml:1:13: role x: extends: no role "implementr"; did you mean "implementer"?`},
		{"roles: {critic: {read: no}}\n", `.nestor/config.yaml:1:18: role critic: it is built in; give yours another name`},
		{"roles: {X: {read: no}}\n", `.nestor/config.yaml:1:13: role "X": a name is small letters`},
		{"roles: {x: {deny: [\"Bash(\"]}}\n", `.nestor/config.yaml:1:19: roles.x.deny is "Bash(": `},
		{"roles: {x: 3}\n", `.nestor/config.yaml:1:9: no key "roles.x"`},
	} {
		dir, env := configured(t, test.file, "")
		if _, err := loadConfig(dir, env, nil); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%q: got %v, want %s", test.file, err, test.want)
		}
	}
}

// A role that narrows another needs no trust, one that stands alone does.
func TestProjectRolesOnlyNarrow(t *testing.T) {
	for file, want := range map[string]string{
		"roles: {x: {extends: critic, bash: yes, allow: [Bash]}}\n": "",
		"roles: {x: {bash: yes}}\n":                                 "roles.x.bash counts only if you trust this file",
		"roles: {x: {extends: y}, y: {bash: yes}}\n":                "roles.y.bash counts only if you trust this file",
	} {
		dir, env := configured(t, file, "")
		_, err := loadConfig(dir, untrusting(env), nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", file, err)
		}
	}
}
