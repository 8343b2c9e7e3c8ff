package claude

import (
	"slices"
	"strings"
	"testing"
)

func TestEnvironment(t *testing.T) {
	const parent, state = "TRACEPARENT=00-old", "TRACESTATE=old"
	tests := []struct {
		name      string
		o         Options
		inherited []string
		want      []string // are there
		not       []string // keys that are not there
	}{
		{"item 79: Env reaches the CLI and PATH is kept", Options{Env: []string{"A=1"}}, []string{"PATH=/bin"}, []string{"A=1", "PATH=/bin"}, nil},
		{"item 79: Env wins over what is inherited", Options{Env: []string{"A=1", "A=2"}}, []string{"A=0"}, []string{"A=2"}, nil},
		{"Unset takes away what is inherited, not what is given", Options{Unset: []string{"A", "B"}, Env: []string{"B=2"}}, []string{"A=1", "B=1", "C=1"},
			[]string{"B=2", "C=1"}, []string{"A"}},
		{"ReplaceEnv inherits nothing", Options{Env: []string{"A=1"}, ReplaceEnv: true}, []string{"PATH=/bin"},
			[]string{"A=1", "CLAUDE_CODE_ENTRYPOINT=sdk-go"}, []string{"PATH"}},
		{"item 80: the entrypoint is ours", Options{}, []string{"CLAUDE_CODE_ENTRYPOINT=cli"}, []string{"CLAUDE_CODE_ENTRYPOINT=sdk-go"}, nil},
		{"item 80: unless Env says another", Options{Env: []string{"CLAUDE_CODE_ENTRYPOINT=mine"}}, nil, []string{"CLAUDE_CODE_ENTRYPOINT=mine"}, nil},
		{"item 81: the version is always ours", Options{Env: []string{"CLAUDE_AGENT_SDK_VERSION=9"}}, []string{"CLAUDE_AGENT_SDK_VERSION=8"},
			[]string{"CLAUDE_AGENT_SDK_VERSION=" + sdkVersion}, nil},
		{"item 82: an outer session is not handed on", Options{}, []string{"CLAUDECODE=1", "CLAUDE_CODE_SSE_PORT=1", "CLAUDE_CODE_SESSION_ID=x", "CLAUDE_CONFIG_DIR=/c"},
			[]string{"CLAUDE_CONFIG_DIR=/c"}, []string{"CLAUDECODE", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_SESSION_ID"}},
		{"item 82: unless Env says so", Options{Env: []string{"CLAUDECODE=1"}}, []string{"CLAUDECODE=1"}, []string{"CLAUDECODE=1"}, nil},
		{"a program's debugging is not the CLI's", Options{}, []string{"DEBUG=*", "NODE_OPTIONS=--inspect"}, nil, []string{"DEBUG", "NODE_OPTIONS"}},
		{"session states are reported", Options{}, []string{"CLAUDE_CODE_SDK_READS_SESSION_STATE=0"}, []string{"CLAUDE_CODE_SDK_READS_SESSION_STATE=1"}, nil},
		{"unless Env says otherwise in any case", Options{Env: []string{"claude_code_sdk_reads_session_state=0"}}, nil,
			[]string{"claude_code_sdk_reads_session_state=0"}, []string{"CLAUDE_CODE_SDK_READS_SESSION_STATE"}},
		{"item 83: a trace context is passed on", Options{TraceParent: "00-new", TraceState: "a=b"}, nil, []string{"TRACEPARENT=00-new", "TRACESTATE=a=b"}, nil},
		{"item 84: Env wins", Options{TraceParent: "00-new", TraceState: "new", Env: []string{"TRACEPARENT=00-env"}}, []string{parent, state},
			[]string{"TRACEPARENT=00-env"}, []string{"TRACESTATE"}},
		{"item 86: a fresh context drops the stale state", Options{TraceParent: "00-new"}, []string{parent, state}, []string{"TRACEPARENT=00-new"}, []string{"TRACESTATE"}},
		{"items 85, 87: without a context the inherited one passes", Options{}, []string{parent, state}, []string{parent, state}, nil},
		{"item 88: a state alone scrubs nothing", Options{TraceState: "new"}, []string{parent, state}, []string{parent, state}, nil},
		{"item 90: Env reaches the CLI", Options{Env: []string{"MAX_MCP_OUTPUT_TOKENS=any"}}, []string{"MAX_MCP_OUTPUT_TOKENS=1"}, []string{"MAX_MCP_OUTPUT_TOKENS=any"}, nil},
		{"item 90: nothing is invented", Options{}, nil, nil, []string{"MAX_MCP_OUTPUT_TOKENS"}},
		{"item 90: inherited passes", Options{}, []string{"MAX_MCP_OUTPUT_TOKENS=1"}, []string{"MAX_MCP_OUTPUT_TOKENS=1"}, nil},
		{"the directory is the CLI's", Options{Dir: "/work"}, []string{"PWD=/"}, []string{"PWD=/work"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inherited := slices.Clone(tt.inherited)
			got := tt.o.environ(tt.inherited, "linux")
			if !slices.Equal(inherited, tt.inherited) {
				t.Errorf("changed what is inherited: %q", tt.inherited)
			}
			for _, kv := range tt.want {
				if !slices.Contains(got, kv) {
					t.Errorf("%q lacks %s", got, kv)
				}
			}
			keys := map[string]int{}
			for _, kv := range got {
				keys[envKey(kv)]++
			}
			for key, n := range keys {
				if n > 1 {
					t.Errorf("%s stands there %d times", key, n)
				}
			}
			for _, key := range tt.not {
				if keys[key] > 0 {
					t.Errorf("%q has %s", got, key)
				}
			}
		})
	}
}

func TestEnvironmentOnWindows(t *testing.T) {
	o := Options{Env: []string{"path=C:\\new"}, Dir: "x"}
	got := o.environ([]string{"=C:=C:\\", "Path=C:\\old", "ClaudeCode=1"}, "windows")
	if !slices.Contains(got, "=C:=C:\\") {
		t.Errorf("%q lost the directory of a drive", got)
	}
	for _, kv := range got {
		if key := strings.ToLower(envKey(kv)); key == "claudecode" || key == "pwd" || kv == "Path=C:\\old" {
			t.Errorf("%q has %s", got, kv)
		}
	}
}
