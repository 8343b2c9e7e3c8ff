package claude

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
)

func TestSettingsWithSandbox(t *testing.T) {
	tests := []struct {
		name     string
		settings string
		sandbox  Sandbox
		want     string
	}{
		{"item 54: alone", "", Sandbox{AutoAllowBash: new(true)}, `{"sandbox":{"autoAllowBashIfSandboxed":true}}`},
		{"item 55: merged", ` {"model":"opus","n":12345678901234567890} `, Sandbox{Enabled: new(false)}, `{"model":"opus","n":12345678901234567890,"sandbox":{"enabled":false}}`},
		{"item 57: minimal", "", Sandbox{}, `{"sandbox":{}}`},
		{"item 57: the whole network", "", Sandbox{Network: &SandboxNetwork{
			AllowedDomains: []string{"a"}, DeniedDomains: []string{}, StrictAllowlist: new(true), AllowManagedDomainsOnly: new(false), AllowUnixSockets: []string{"/s"},
			AllowAllUnixSockets: new(false), AllowLocalBinding: new(true), AllowMachLookup: []string{"m"}, HTTPProxyPort: 1, SOCKSProxyPort: 2, TLSTerminate: &SandboxTLS{CACert: "c", CAKey: "k"},
		}}, `{"sandbox":{"network":{"allowedDomains":["a"],"deniedDomains":[],"strictAllowlist":true,"allowManagedDomainsOnly":false,"allowUnixSockets":["/s"],
			"allowAllUnixSockets":false,"allowLocalBinding":true,"allowMachLookup":["m"],"httpProxyPort":1,"socksProxyPort":2,"tlsTerminate":{"caCertPath":"c","caKeyPath":"k"}}}}`},
		{"an enabled sandbox must be there", "", Sandbox{Enabled: new(true)}, `{"sandbox":{"enabled":true,"failIfUnavailable":true}}`},
		{"also when the settings enable it", `{"sandbox":{"enabled":true}}`, Sandbox{}, `{"sandbox":{"enabled":true,"failIfUnavailable":true}}`},
		{"unless somebody says otherwise", `{"sandbox":{"failIfUnavailable":false}}`, Sandbox{Enabled: new(true)}, `{"sandbox":{"enabled":true,"failIfUnavailable":false}}`},
		{"deny lists are joined, others replaced", `{"sandbox":{"filesystem":{"denyRead":["/a","/b"],"allowWrite":["/w"]},"excludedCommands":["x"]}}`,
			Sandbox{ExcludedCommands: []string{"y"}, Filesystem: &SandboxFilesystem{DenyRead: []string{"/b", "/c"}, AllowWrite: []string{"/v"}}},
			`{"sandbox":{"filesystem":{"denyRead":["/a","/b","/c"],"allowWrite":["/v"]},"excludedCommands":["y"]}}`},
		{"secrets are joined by value", `{"sandbox":{"credentials":{"files":[{"mode":"mask","path":"/k"}]}}}`,
			Sandbox{Credentials: &SandboxCredentials{Files: []SecretFile{{Path: "/k", Mode: "mask"}, {Path: "/k", Mode: "deny"}}}},
			`{"sandbox":{"credentials":{"files":[{"mode":"mask","path":"/k"},{"mode":"deny","path":"/k"}]}}}`},
		{"some objects are replaced", `{"sandbox":{"ripgrep":{"command":"rg","args":["-x"]},"network":{"tlsTerminate":{"caCertPath":"a","caKeyPath":"b"}}}}`,
			Sandbox{Extra: map[string]json.RawMessage{"ripgrep": json.RawMessage(`{"command":"grep"}`)}, Network: &SandboxNetwork{TLSTerminate: &SandboxTLS{CACert: "c"}}},
			`{"sandbox":{"ripgrep":{"command":"grep"},"network":{"tlsTerminate":{"caCertPath":"c"}}}}`},
		{"rules for files switch the layer on", `{"sandbox":{"filesystem":{"disabled":true}}}`, Sandbox{Filesystem: &SandboxFilesystem{DenyWrite: []string{"/w"}}},
			`{"sandbox":{"filesystem":{"denyWrite":["/w"]}}}`},
		{"so does a denied secret", `{"sandbox":{"filesystem":{"disabled":true}}}`, Sandbox{Credentials: &SandboxCredentials{Files: []SecretFile{{Path: "/k", Mode: "deny"}}}},
			`{"sandbox":{"filesystem":{},"credentials":{"files":[{"path":"/k","mode":"deny"}]}}}`},
		{"a masked one does not", `{"sandbox":{"filesystem":{"disabled":true}}}`, Sandbox{Credentials: &SandboxCredentials{Files: []SecretFile{{Path: "/k", Mode: "mask"}}}},
			`{"sandbox":{"filesystem":{"disabled":true},"credentials":{"files":[{"path":"/k","mode":"mask"}]}}}`},
		{"unless it is switched off on purpose", `{"sandbox":{"filesystem":{"disabled":true}}}`, Sandbox{Filesystem: &SandboxFilesystem{Disabled: new(true)}},
			`{"sandbox":{"filesystem":{"disabled":true}}}`},
		{"rules for domains drop foreign proxies", `{"sandbox":{"network":{"httpProxyPort":1,"socksProxyPort":2,"allowLocalBinding":true}}}`,
			Sandbox{Network: &SandboxNetwork{AllowedDomains: []string{"a"}, HTTPProxyPort: 3}}, `{"sandbox":{"network":{"httpProxyPort":3,"allowLocalBinding":true,"allowedDomains":["a"]}}}`},
		{"no rules for domains keep them", `{"sandbox":{"network":{"httpProxyPort":1}}}`, Sandbox{Network: &SandboxNetwork{DeniedDomains: []string{}, StrictAllowlist: new(false)}},
			`{"sandbox":{"network":{"httpProxyPort":1,"deniedDomains":[],"strictAllowlist":false}}}`},
		{"a field wins over an extra", "", Sandbox{Enabled: new(false), Extra: map[string]json.RawMessage{"enabled": json.RawMessage("true"), "new": json.RawMessage("1")}},
			`{"sandbox":{"enabled":false,"new":1}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := settingsJSON(tt.settings, &tt.sandbox)
			if err != nil {
				t.Fatal(err)
			}
			wantJSON(t, json.RawMessage(got), tt.want)
		})
	}
	for name, tt := range map[string]struct{ settings, says string }{
		"a path":       {"/etc/settings.json", "path of a file"},
		"broken JSON":  {`{"a":`, "Settings"},
		"more than it": {`{} {}`, "Settings"},
	} {
		t.Run(name+" is an error", func(t *testing.T) {
			_, err := (&Options{Settings: tt.settings, Sandbox: &Sandbox{}}).launchOn("linux", "c", nil)
			wantSaid(t, err, tt.says)
		})
	}
}

// Merging never panics, changes neither side, keeps what the settings deny,
// and does nothing the second time.
func FuzzMergeSandbox(f *testing.F) {
	f.Add(`{"filesystem":{"denyRead":["/a"],"disabled":true}}`, `{"filesystem":{"denyRead":["/b"]}}`)
	f.Add(`{"network":{"httpProxyPort":1}}`, `{"network":{"allowedDomains":[]}}`)
	f.Add(`{"network":7}`, `{"network":{"strictAllowlist":true},"credentials":{"files":[{"mode":"deny"},7]}}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		under, err := decodeObject([]byte(a))
		if err != nil {
			return
		}
		over, err := decodeObject([]byte(b))
		if err != nil {
			return
		}
		once := mergeSandbox(under, over)
		if again, err := decodeObject([]byte(a)); err != nil || !reflect.DeepEqual(again, under) {
			t.Errorf("changed %s to %v", a, under)
		}
		if twice := mergeSandbox(once, over); !reflect.DeepEqual(twice, once) {
			t.Errorf("merged twice: %v, once: %v", twice, once)
		}
		was, _ := under["filesystem"].(map[string]any)
		denied, _ := was["denyRead"].([]any)
		is, _ := once["filesystem"].(map[string]any)
		still, ok := is["denyRead"].([]any)
		for _, path := range denied {
			if p, isText := path.(string); ok && isText && !slices.Contains(still, any(p)) {
				if own, _ := over["filesystem"].(map[string]any); own != nil {
					t.Errorf("lost %q", p)
				}
			}
		}
	})
}
