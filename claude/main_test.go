package claude_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

func TestMain(m *testing.M) {
	scripts := map[string]claudetest.Script{"answers": answers}
	for _, more := range []map[string]claudetest.Script{endings, talks, examples, lives, copies, readings} {
		maps.Copy(scripts, more)
	}
	code := claudetest.Main(m, scripts)
	if code == 0 {
		if err := errors.Join(goleak.Find(), leftProcesses()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// runVariable is set by claudetest.Main to a folder of this run alone, and
// inherited by every CLI that a test starts.
const runVariable = "CLAUDETEST_PLAYED"

// storedID is a session that a store keeps.
const storedID = "cccccccc-cccc-4ccc-8ccc-cccccccccccc"

// fake returns options for a fake CLI that plays a script.
func fake(script string) claude.Options {
	path, env := claudetest.Fake(script)
	return claude.Options{Path: path, Env: env}
}

// collect returns the messages and the error that an iteration yields, and
// fails the test if anything comes behind the error.
func collect(t testing.TB, seq func(func(claude.Message, error) bool)) (messages []claude.Message, last error) {
	t.Helper()
	for msg, err := range seq {
		if last != nil {
			t.Fatalf("%v came behind the error %v", msg, last)
		}
		if err != nil {
			last = err
			continue
		}
		messages = append(messages, msg)
	}
	return messages, last
}

// results returns the texts of the results among the messages.
func results(messages []claude.Message) (texts []string) {
	for _, m := range messages {
		if r, ok := m.(*claude.Result); ok {
			texts = append(texts, r.Result)
		}
	}
	return texts
}

// success is the line of a good result for the prompt.
func success(prompt claudetest.HostLine, text string) string {
	return fmt.Sprintf(`{"type":"result","subtype":"success","is_error":false,"result":%q,"num_turns":1,"user_message_uuid":%q}`, text, uuidOf(prompt))
}

func start(t testing.TB, opts claude.Options) *claude.Session {
	t.Helper()
	s, err := claude.Start(bounded(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
