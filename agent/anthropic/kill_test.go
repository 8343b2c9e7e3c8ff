package anthropic

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic/tools"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/internal/soak"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// The environment of a test binary that plays an agent's process, to be killed.
const (
	victimVariable  = "NESTOR_TEST_VICTIM" // its folder
	victimModel     = "NESTOR_TEST_VICTIM_MODEL"
	victimSession   = "NESTOR_TEST_VICTIM_SESSION" // to resume; may be empty
	victimToDo      = "NESTOR_TEST_VICTIM_TODO"    // its prompt
	killedFiles     = 12
	killsOfEachLife = 3
)

// victim handles one message with the real tools, and prints a line whenever
// something happens, so that it can be killed there.
func victim(dir string) {
	p := New(Options{
		BaseURL: os.Getenv(victimModel), APIKey: "key",
		Records: DirRecords(filepath.Join(dir, "records")), Spool: filepath.Join(dir, "spool"),
	})
	c := agent.Config{
		Name: "victim", Dir: filepath.Join(dir, "work"), PermissionMode: "bypassPermissions", Resume: os.Getenv(victimSession),
		Hooks: preToolUse(func(*claude.PreToolUseInput) *claude.PreToolUseOutput {
			fmt.Println("before the call")
			return nil
		}),
	}
	c.Hooks.PostToolUse = []claude.Hook[claude.PostToolUseInput, claude.PostToolUseOutput]{{
		Func: func(context.Context, *claude.PostToolUseInput) (*claude.PostToolUseOutput, error) {
			fmt.Println("behind the call")
			return nil, nil
		},
	}}
	a, err := p.Create(context.Background(), c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for m, err := range a.Handle(context.Background(), agent.NewMessage("test", os.Getenv(victimToDo))) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(m.Metadata["sdk_type"])
	}
	os.Exit(0)
}

// An agent's process is killed at any moment, again and again, while it changes
// files with Write, Edit and Bash, and the session goes on from its records: what
// is on record as done is done, stays on record, and is not done again; what was
// interrupted is said to be so; the API takes the conversation. NESTOR_SEED
// repeats a run, as far as the moments go.
func TestKilledAtAnyMoment(t *testing.T) {
	lives, random := soak.Of(5, 50), soak.Rand(t)
	kills := 0
	for n := 0; n < lives || kills < lives && n < 10*lives; n++ { // some end before the line at which they would be killed
		kills += killAgainAndAgain(t, random)
	}
	if kills < lives {
		t.Errorf("only %d processes were killed", kills)
	}
}

// killAgainAndAgain has one session done, in as many processes as that takes.
// It returns how many were killed.
func killAgainAndAgain(t *testing.T, random *rand.Rand) (kills int) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "work"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range changes() {
		if c.tool == "Edit" {
			if err := os.WriteFile(filepath.Join(dir, "work", c.name), []byte("old\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	model := scriptmodel.Start(t, `rules: []`)
	records := DirRecords(filepath.Join(dir, "records"))
	session, done := "", map[string]bool{}
	for life := 0; ; life++ {
		line := -1 // let it live
		if life < killsOfEachLife {
			line = random.IntN(90)
		}
		killed := runVictim(t, dir, model.URL, session, todo(done), line)
		if killed {
			kills++
		}
		files, err := filepath.Glob(filepath.Join(string(records), "*.jsonl"))
		if err != nil || len(files) > 1 {
			t.Fatalf("the records are in %q, %v", files, err)
		}
		if len(files) == 1 {
			session = strings.TrimSuffix(filepath.Base(files[0]), ".jsonl")
		}
		before := done
		done = onRecord(t, records, session)
		for name := range before {
			if !done[name] {
				t.Errorf("the result of the change of %s was on record, and is lost", name)
			}
		}
		for _, c := range changes() {
			if err := c.made(dir, kills); err != nil && (done[c.name] || !killed) {
				t.Errorf("%s of %s: on record %v: %v", c.tool, c.name, done[c.name], err)
			}
		}
		if !killed {
			break
		}
	}
	for _, r := range model.Requests() {
		if r.Status != http.StatusOK {
			t.Errorf("request %d was refused with %d: %s", r.Seq, r.Status, r.Body)
		}
		messagesOf(t, r)
	}
	return kills
}

// change is one of those that a victim makes.
type change struct{ tool, name string }

func changes() (list []change) {
	for i := range killedFiles {
		list = append(list, change{[]string{"Write", "Edit", "Bash"}[i%3], fmt.Sprintf("f%d", i)})
	}
	return list
}

// call is the change in a script.
func (c change) call() string {
	switch c.tool {
	case "Write":
		return use("Write", in{"file_path": c.name, "content": "written\n"})
	case "Edit":
		return use("Edit", in{"file_path": c.name, "old_string": "old", "new_string": "new"})
	}
	return use("Bash", in{"command": "echo changed >> " + c.name})
}

// made tells whether the change was made. What was interrupted may have been
// made, and be made again.
func (c change) made(dir string, kills int) error {
	data, err := os.ReadFile(filepath.Join(dir, "work", c.name))
	if err != nil {
		return err
	}
	ok := string(data) == map[string]string{"Write": "written\n", "Edit": "new\n"}[c.tool]
	if c.tool == "Bash" {
		n := strings.Count(string(data), "changed\n")
		ok = n >= 1 && n <= 1+kills && len(data) == n*len("changed\n")
	}
	if !ok {
		return fmt.Errorf("the file is %q", data)
	}
	return nil
}

// todo is a prompt that carries the script of a model which looks at what is not
// done, and does it, two changes in each answer.
func todo(done map[string]bool) string {
	var looks, left []string
	for _, c := range changes() {
		if done[c.name] {
			continue
		}
		left = append(left, c.call())
		if c.tool != "Bash" {
			looks = append(looks, use("Read", in{"file_path": c.name}))
		}
	}
	var b strings.Builder
	b.WriteString("Do it.\n```script\n")
	if looks != nil {
		fmt.Fprintf(&b, "- tools: [%s]\n", strings.Join(looks, ", "))
	}
	for two := range slices.Chunk(left, 2) {
		fmt.Fprintf(&b, "- tools: [%s]\n", strings.Join(two, ", "))
	}
	b.WriteString("- text: done\n```\n")
	return b.String()
}

// runVictim runs a process and kills it at that line of its output. It tells
// whether it did.
func runVictim(t *testing.T, dir, url, session, prompt string, line int) (killed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimVariable+"="+dir, victimModel+"="+url, victimSession+"="+session, victimToDo+"="+prompt)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for n := 0; ; n++ {
		if n == line {
			cmd.Process.Kill()
			killed = true
		}
		if _, err := lines.ReadString('\n'); err != nil {
			io.Copy(io.Discard, out)
			break
		}
	}
	err = cmd.Wait()
	if err == nil {
		return false // it was done before
	}
	if !killed || cmd.ProcessState.Exited() {
		t.Fatalf("the process ended with %v: %s", err, &stderr)
	}
	return true
}

// onRecord returns the changes that are on record as made.
func onRecord(t *testing.T, records Records, session string) map[string]bool {
	t.Helper()
	done := map[string]bool{}
	if session == "" {
		return done
	}
	list, err := records.Load(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rebuild(nil, list)
	if err != nil {
		t.Fatal(err)
	}
	c.done(func(tool string, input json.RawMessage) {
		var in struct {
			Path    string `json:"file_path"`
			Command string `json:"command"`
		}
		json.Unmarshal(input, &in)
		name := filepath.Base(in.Path)
		switch tool {
		case "Read":
			return
		case "Bash":
			name = strings.TrimPrefix(in.Command, "echo changed >> ")
		}
		if done[name] {
			t.Errorf("%s was changed again though its change was on record", name)
		}
		done[name] = true
	})
	return done
}

// Whatever of a session's records is lost, doubled or out of order: what is left
// adds up to a conversation that the API takes.
func TestRecordsInDisorder(t *testing.T) {
	records := &MemRecords{}
	b := open(t, remembers, func(o *Options) { o.Records = records })
	var j journal
	b.tools = []tools.Tool{j.reader("Look")}
	a := b.create(remembering(agent.Config{}))
	id := answerTo(t, a, "work").result(t).Metadata["session_id"].(string)
	answerTo(t, a, "work")
	answerTo(t, a, "more")
	all, _ := records.Load(t.Context(), id)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		list := slices.Clone(all)
		for range random.IntN(6) {
			i, k := random.IntN(len(list)), random.IntN(len(list))
			switch random.IntN(3) {
			case 0:
				list = slices.Delete(list, i, i+1)
			case 1:
				list = slices.Insert(list, i, list[k])
			case 2:
				list[i], list[k] = list[k], list[i]
			}
		}
		c, err := rebuild(nil, list)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		c.user([]json.RawMessage{textBlock("go on")})
		if err := valid(c.messages); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
