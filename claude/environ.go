package claude

import (
	"path/filepath"
	"slices"
	"strings"
)

// sdkVersion is what the CLI is told about this package; it shows up in the
// User-Agent of its requests.
const sdkVersion = "0.1.0"

// nested are the variables that a CLI sets for the programs it runs. A host
// that is one of them does not hand them on, or its own CLI would believe that
// it is part of the outer session. Seen in 2.1.325.
var nested = []string{
	"AI_AGENT",
	"CLAUDECODE",
	"CLAUDE_CODE_CHILD_SESSION",
	"CLAUDE_CODE_ENTRYPOINT",
	"CLAUDE_CODE_EXECPATH",
	"CLAUDE_CODE_SESSION_ATTENDED",
	"CLAUDE_CODE_SESSION_ID",
	"CLAUDE_CODE_SSE_PORT",
	"CLAUDE_EFFORT",
	"CLAUDE_PID",
}

// debugging are variables that programmers set for a program of theirs and
// that would make the CLI print what is not part of the protocol.
var debugging = []string{"DEBUG", "NODE_OPTIONS"}

// environ returns the environment of the CLI, made from the one that this
// process inherited. What Env says wins, but for the version of this package.
func (o *Options) environ(inherited []string, goos string) []string {
	e := environment{ignoreCase: goos == "windows"}
	if !o.ReplaceEnv {
		e.add(inherited)
		e.remove(nested...)
		e.remove(debugging...)
		e.remove(o.Unset...)
	}
	own := environment{ignoreCase: e.ignoreCase}
	own.add(o.Env)

	e.set("CLAUDE_CODE_ENTRYPOINT", "sdk-go")
	if !own.hasAnyCase("CLAUDE_CODE_SDK_READS_SESSION_STATE") {
		e.set("CLAUDE_CODE_SDK_READS_SESSION_STATE", "1")
	}
	if o.FileCheckpoints {
		e.set("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "true")
	}
	if o.QuestionPreview != "" {
		e.set("CLAUDE_CODE_QUESTION_PREVIEW_FORMAT", o.QuestionPreview)
	}
	if o.Dir != "" && goos != "windows" {
		if dir, err := filepath.Abs(o.Dir); err == nil {
			e.set("PWD", dir)
		}
	}
	// A trace state belongs to its trace parent: whoever sets the parent
	// replaces both.
	switch {
	case own.has("TRACEPARENT"):
		e.remove("TRACEPARENT", "TRACESTATE")
	case o.TraceParent != "":
		e.remove("TRACEPARENT", "TRACESTATE")
		e.set("TRACEPARENT", o.TraceParent)
		if o.TraceState != "" {
			e.set("TRACESTATE", o.TraceState)
		}
	}
	e.add(own.list)
	e.set("CLAUDE_AGENT_SDK_VERSION", sdkVersion)
	return e.list
}

// environment is a list of "K=V" in which each key stands once.
type environment struct {
	list       []string
	ignoreCase bool // of keys
}

func (e *environment) index(key string) int {
	return slices.IndexFunc(e.list, func(kv string) bool {
		k := envKey(kv)
		return k == key || e.ignoreCase && strings.EqualFold(k, key)
	})
}

func (e *environment) has(key string) bool { return e.index(key) >= 0 }

func (e *environment) hasAnyCase(key string) bool {
	return (&environment{list: e.list, ignoreCase: true}).has(key)
}

func (e *environment) set(key, value string) { e.add([]string{key + "=" + value}) }

func (e *environment) add(list []string) {
	for _, kv := range list {
		if i := e.index(envKey(kv)); i >= 0 {
			e.list[i] = kv
		} else {
			e.list = append(e.list, kv)
		}
	}
}

func (e *environment) remove(keys ...string) {
	for _, key := range keys {
		if i := e.index(key); i >= 0 {
			e.list = slices.Delete(e.list, i, i+1)
		}
	}
}

// envKey returns what is before the first "=" that does not begin the entry:
// Windows keeps its drives' directories under names such as "=C:".
func envKey(kv string) string {
	if i := strings.IndexByte(kv[min(1, len(kv)):], '='); i >= 0 {
		return kv[:i+1]
	}
	return kv
}
