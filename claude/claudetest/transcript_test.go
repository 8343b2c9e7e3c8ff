package claudetest_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/claude/claudetest"
)

// Every recorded file reads, is written as it was read, and tells nothing of
// the machine that recorded it.
func TestRecordedTranscripts(t *testing.T) {
	files, _ := filepath.Glob(transcripts + "/*.txtar")
	machine := regexp.MustCompile(`/tmp/|/root|/home/|127\.0\.0\.1:[0-9]{2}|20\d\d-(0[2-9]|1[0-2])-\d\dT`)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tr := read(t, file)
		if again := tr.Format(); !bytes.Equal(again, data) {
			t.Errorf("%s is not written as it was read", file)
		}
		if tr.About == "" || tr.Version == "" || len(tr.Acts) == 0 || len(tr.Lines) == 0 {
			t.Errorf("%s is not recorded: about %q, version %q", file, tr.About, tr.Version)
		}
		for _, l := range tr.Lines {
			if found := machine.Find(l.JSON); found != nil {
				t.Errorf("%s tells of the machine: %s in %.200s", file, found, l)
				break
			}
		}
	}
}

func TestTranscriptErrorsNameTheirPlace(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"section", "-- hots --\n", "t.txtar: section hots: there is no such section"},
		{"section in disguise", "-- about --  ", `t.txtar: the line "-- about --" looks like the beginning of a section`},
		{"section in disguise among args", "-- args --\n -- x --\n", "looks like the beginning of a section"},
		{"step", "-- host --\n\nwait result\n", `section host: line 2: "wait result" is no step`},
		{"number", "-- host.22 --\n", `"22" is not the number of a process`},
		{"step without a kind", "-- host --\non  {}\n", "does not say what it answers"},
		{"step's JSON", "-- host --\n> {\n", "section host: line 1: "},
		{"line", "-- transcript --\n= {}\n", "section transcript: line 1 begins with none"},
		{"line's JSON", "-- transcript --\n< {\n", "section transcript: line 1 holds no valid JSON"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := claudetest.ParseTranscript("t.txtar", []byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestKind(t *testing.T) {
	for line, want := range map[string]string{
		`{"type":"result","subtype":"success"}`:                               "result/success",
		`{"type":"assistant","message":{}}`:                                   "assistant",
		`{"type":"stream_event","event":{"type":"ping"}}`:                     "stream_event/ping",
		`{"type":"control_request","request":{"subtype":"can_use_tool"}}`:     "control_request/can_use_tool",
		`{"type":"control_response","response":{"request_id":"a","error":1}}`: "control_response/a",
		`[]`: "",
	} {
		if got := claudetest.Kind(json.RawMessage(line)); got != want {
			t.Errorf("%s is %q, want %q", line, got, want)
		}
	}
}

func FuzzParseTranscript(f *testing.F) {
	f.Add([]byte("about\nRecorded with Claude Code 1.2.3.\n-- args --\n-v\n-- host --\n> {}\non x {}\nmcp a b {}\n-- host.2 --\n< result\n-- transcript --\n# start\n< {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tr, err := claudetest.ParseTranscript("f", data)
		if err != nil {
			return
		}
		text := tr.Format()
		again, err := claudetest.ParseTranscript("f", text)
		if err != nil {
			t.Fatalf("what it wrote it does not read: %v\n%s", err, text)
		}
		if second := again.Format(); !bytes.Equal(second, text) {
			t.Fatalf("written twice it differs:\n%s\n%s", text, second)
		}
	})
}
