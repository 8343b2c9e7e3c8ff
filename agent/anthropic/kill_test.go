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

// victim handles one message, and prints a line whenever something happens, so
// that it can be killed there.
func victim(dir string) {
	at := func(what string) { fmt.Println(what) }
	put := tools.Tool{Name: "Put", Run: func(_ context.Context, input json.RawMessage) (tools.Result, error) {
		var in named
		if err := json.Unmarshal(input, &in); err != nil {
			return tools.Result{}, err
		}
		at("before the change")
		f, err := os.OpenFile(filepath.Join(dir, "work", in.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return tools.Result{}, err
		}
		defer f.Close()
		_, err = fmt.Fprintln(f, "changed")
		at("behind the change")
		return tools.Result{Text: "put " + in.Name}, err
	}}
	p := New(Options{
		BaseURL: os.Getenv(victimModel), APIKey: "key", Records: DirRecords(filepath.Join(dir, "records")),
		Tools: func(agent.Config) []tools.Tool { return []tools.Tool{put} },
	})
	a, err := p.Create(context.Background(), agent.Config{
		Name: "victim", Dir: dir, PermissionMode: "bypassPermissions", Resume: os.Getenv(victimSession),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for m, err := range a.Handle(context.Background(), agent.NewMessage("test", os.Getenv(victimToDo))) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		at(fmt.Sprint(m.Metadata["sdk_type"]))
	}
	os.Exit(0)
}

// An agent's process is killed at any moment, again and again, and the session
// goes on from its records: what is on record as done is done, and not again;
// what was interrupted is said to be so; the API takes the conversation.
func TestKilledAtAnyMoment(t *testing.T) {
	lives := 5
	if os.Getenv("NESTOR_SOAK") != "" {
		lives = 50
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kills := 0
	for range lives {
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
	model := scriptmodel.Start(t, `rules: []`)
	records := DirRecords(filepath.Join(dir, "records"))
	session, done := "", map[string]bool{}
	for life := 0; ; life++ {
		line := -1 // let it live
		if life < killsOfEachLife {
			line = random.IntN(40)
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
		done = onRecord(t, records, session)
		for name := range done {
			if n := changes(t, dir, name); n < 1 {
				t.Errorf("%s is on record as changed, and was changed %d times", name, n)
			}
		}
		if !killed {
			break
		}
	}
	for i := range killedFiles {
		// One interruption may hide a change, so that it is made again.
		name := fmt.Sprintf("f%d", i)
		if n := changes(t, dir, name); !done[name] || n < 1 || n > 1+kills {
			t.Errorf("%s was changed %d times", name, n)
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

// todo is a prompt that carries the script of a model which does what is not
// done, two changes in each answer.
func todo(done map[string]bool) string {
	var b strings.Builder
	b.WriteString("Do it.\n```script\n")
	for i := range killedFiles / 2 {
		var calls []string
		for _, name := range []string{fmt.Sprintf("f%d", 2*i), fmt.Sprintf("f%d", 2*i+1)} {
			if !done[name] {
				calls = append(calls, "{name: Put, input: {name: "+name+"}}")
			}
		}
		if calls != nil {
			fmt.Fprintf(&b, "- tools: [%s]\n", strings.Join(calls, ", "))
		}
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
	c.done(func(_ string, input json.RawMessage) {
		var in named
		json.Unmarshal(input, &in)
		if done[in.Name] {
			t.Errorf("%s was changed again though its change was on record", in.Name)
		}
		done[in.Name] = true
	})
	return done
}

// changes counts how often a file was changed.
func changes(t *testing.T, dir, name string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "work", name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(data, []byte("\n"))
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
