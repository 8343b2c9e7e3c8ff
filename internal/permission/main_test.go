package permission

import (
	"encoding/json"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call makes one in /w, of a tool with its input as pairs.
func call(tool string, pairs ...string) Call {
	in := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		in[pairs[i]] = pairs[i+1]
	}
	raw, err := json.Marshal(in)
	if err != nil {
		panic(err)
	}
	return Call{Tool: tool, Input: raw, Dir: "/w"}
}

func bash(command string) Call { return call("Bash", "command", command) }

func rules(t testing.TB, texts ...string) (list []Rule) {
	t.Helper()
	for _, text := range texts {
		r, err := ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}
