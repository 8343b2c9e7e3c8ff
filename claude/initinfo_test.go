package claude

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// recordedInitialize returns the payload with which CLI 2.1.325 answered
// initialize.
func recordedInitialize(t *testing.T) json.RawMessage {
	t.Helper()
	data, err := os.ReadFile("testdata/transcripts/control.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		line, ok := strings.CutPrefix(line, `< {"type":"control_response",`)
		if !ok || !strings.Contains(line[:min(len(line), 100)], `"request_id":"init"`) {
			continue
		}
		var m struct {
			Response struct{ Response json.RawMessage }
		}
		if err := json.Unmarshal([]byte("{"+line), &m); err != nil {
			t.Fatal(err)
		}
		return m.Response.Response
	}
	t.Fatal("no initialize was recorded")
	return nil
}

func TestDecodeInitialize(t *testing.T) {
	raw := recordedInitialize(t)
	i, err := decodeInitialize(raw)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "mismatch", i.Mismatch, "")
	equal(t, "raw", string(i.Raw), string(raw))
	equal(t, "version", i.Version, "2.1.325")
	equal(t, "commands", len(i.Commands), 44)
	equal(t, "alias", i.Commands[5].Aliases[0], "review")
	equal(t, "agent", i.Agents[1], AgentInfo{Name: "Explore", Description: i.Agents[1].Description, Model: "inherit"})
	equal(t, "models", len(i.Models), 5)
	equal(t, "model", i.Models[1].Value+" "+i.Models[1].ResolvedModel, "opus claude-opus-5-5")
	equal(t, "fast mode of the model", i.Models[1].SupportsFastMode && i.Models[1].SupportsEffort && i.Models[1].SupportsAutoMode, true)
	equal(t, "account", i.Account, AccountInfo{TokenSource: "none", APIKeySource: "ANTHROPIC_API_KEY", APIProvider: "firstParty"})
	equal(t, "style", i.OutputStyle, "default")
	equal(t, "styles", len(i.AvailableOutputStyles), 5)
	equal(t, "styles' folder", i.UserOutputStylesDir, "$HOME/.claude/output-styles")
	equal(t, "pid", i.PID, 1)
	equal(t, "mode", i.PermissionMode, "default")
	equal(t, "state", i.SessionState, "idle")
	equal(t, "fast mode", i.FastModeState+" "+i.FastModeDisabled, "off sdk_opt_in_required")
	equal(t, "on failure", i.HookOnFailureSupported, true)
	equal(t, "hooks applied", i.HooksApplied == nil, true)
	equal(t, "capability", i.Has("ui_surface_v1"), true)
	equal(t, "no capability", i.Has("flies_v1"), false)
}

// What other CLIs answer: less, more, and other than expected.
func TestDecodeInitializeOfOthers(t *testing.T) {
	i, err := decodeInitialize(nil)
	if err != nil || i.Version != "" || i.HookOnFailureSupported || i.Mismatch != "" {
		t.Errorf("nothing is %+v, %v", i, err)
	}
	i, err = decodeInitialize(json.RawMessage(`{"hooks_applied":false,"plugins_applied":true,"managed_settings_applied":true,
		"sdk_mcp_manifests_parked":{"calc":"parked"},"account":"me","output_style":"x","commands":{"a":1}}`))
	if err != nil || *i.HooksApplied || !*i.PluginsApplied || !*i.ManagedSettingsApplied || i.ManifestsParked["calc"] != "parked" || i.OutputStyle != "x" {
		t.Errorf("got %+v, %v", i, err)
	}
	if !strings.HasPrefix(i.Mismatch, "account: want ") {
		t.Errorf("the mismatch is %q", i.Mismatch)
	}
	if _, err := decodeInitialize(json.RawMessage(`{`)); err == nil {
		t.Error("broken JSON is no error")
	}
}
