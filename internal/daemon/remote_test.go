package daemon_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent/scripted"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/daemon"
	"github.com/dfaf701a/nestor/internal/eventlog"
	"github.com/dfaf701a/nestor/internal/workspace"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// remoteVariable makes the test binary play a daemon or a worker, as this says.
const remoteVariable = "NESTOR_TEST_REMOTE"

// remoteLease is short, so that the runs of a lost worker are given to another
// soon, and long enough that no living one is taken for lost.
const remoteLease = 3 * time.Second

// machine is a daemon that leaves the work to others, or a worker, in a process of
// its own with a folder of its own.
type machine struct {
	Dir    string
	Listen string // of a daemon; empty for a worker
	Works  bool   // a daemon that leaves not all of the work to others

	URL, Token, Name string // of a worker
	Labels           []string
	Slots            int
	Script           string // of provider scripted
	Model            string // its URL, for provider api
}

// playMachine is what its process does until it is killed or interrupted.
func playMachine(text string) error {
	var m machine
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return m.play(ctx)
}

func (m machine) play(ctx context.Context) error {
	w := daemon.Worker{Provider: "scripted", Slots: m.Slots, Labels: m.Labels}
	if m.Script != "" {
		var err error
		if w.Script, err = scripted.Parse("script", []byte(m.Script)); err != nil {
			return err
		}
	}
	w.API.BaseURL, w.API.APIKey = m.Model, "key"
	if m.Listen == "" {
		return daemon.Work(ctx, daemon.WorkOptions{
			Dir: m.Dir, URL: m.URL, Token: m.Token, Name: m.Name, Worker: w, Lease: remoteLease, Ready: func() { fmt.Println("ready") },
		})
	}
	d := daemon.New(daemon.Options{Dir: m.Dir, Idle: !m.Works, Broker: daemon.Broker{Listen: m.Listen}, Worker: w, Lease: remoteLease})
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	select {
	case <-d.Ready():
		fmt.Println("ready", d.BrokerAddr())
	case err := <-done:
		return err
	}
	return <-done
}

// playing is a machine that runs.
type playing struct {
	machine
	addr  string // of the daemon's broker
	cmd   *exec.Cmd
	ended chan error // what Wait returned, sent once
}

// start starts a machine, and returns when it is ready. It is killed when the test
// ends, if not before.
func (m machine) start(t *testing.T) *playing {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), remoteVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &playing{machine: m, cmd: cmd, ended: make(chan error, 1)}
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	rest := make(chan string, 1)
	go func() {
		said, _ := io.ReadAll(lines)
		rest <- string(said)
		p.ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s %s said: %s%s", m.Name, m.Dir, <-rest, stderr.String())
		}
	})
	var ok bool
	if p.addr, ok = strings.CutPrefix(first, "ready"); err != nil || !ok {
		p.kill()
		t.Fatalf("it does not start: %s%s%s, %v", first, <-rest, stderr.String(), err)
	}
	p.addr = strings.TrimSpace(p.addr)
	return p
}

// kill ends the process with SIGKILL.
func (p *playing) kill() {
	p.cmd.Process.Kill()
	p.wait()
}

// wait waits for its end.
func (p *playing) wait() error {
	err := <-p.ended
	p.ended <- err
	return err
}

// stop ends the process as Ctrl-C would.
func (p *playing) stop(t *testing.T) {
	t.Helper()
	p.cmd.Process.Signal(os.Interrupt)
	if err := p.wait(); err != nil {
		t.Errorf("%s after Ctrl-C: %v", p.Name, err)
	}
}

// project starts a daemon that leaves the work to others.
func project(t *testing.T) *playing {
	t.Helper()
	return machine{Dir: t.TempDir(), Listen: "127.0.0.1:0", Name: "daemon"}.start(t)
}

// worker returns a worker of the daemon, with a folder of its own.
func (p *playing) worker(t *testing.T, name string) machine {
	t.Helper()
	token, err := os.ReadFile(daemon.TokenFile(p.Dir))
	if err != nil {
		t.Fatal(err)
	}
	return machine{Dir: t.TempDir(), URL: "nats://" + p.addr, Token: strings.TrimSpace(string(token)), Name: name, Slots: 5, Script: says(name)}
}

// says is a script that takes a while, and tells whose it is.
func says(name string) string {
	return `
turns:
  - when: hang
    say: [{text: still here, after: 20ms}]
    hang: true
  - say:
      - {text: I begin., after: 100ms}
      - {tool: {name: Bash, input: {command: make}, result: ok, after: 200ms}}
      - {text: by ` + name + `, after: 100ms}
`
}

func (p *playing) client(t *testing.T) *api.Client {
	c := api.NewClient(daemon.SocketPath(p.Dir))
	t.Cleanup(c.Close)
	return c
}

// remoteBound is how long anything in a test may take.
const remoteBound = 2 * time.Minute

func bound(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), remoteBound)
	t.Cleanup(stop)
	return ctx
}

func wait(t *testing.T, c *api.Client, id nestor.ID) api.Run {
	t.Helper()
	run, err := c.Wait(bound(t), id)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func runsOn(worker string) func(api.Run) bool {
	return func(run api.Run) bool { return run.Worker == worker && run.State == nestor.Running }
}

// saidBy returns which worker's script the result is of.
func saidBy(run api.Run) string {
	if run.Result == nil || run.State != nestor.Success {
		return fmt.Sprintf("nobody: it is %s, %s", run.State, run.Doing)
	}
	_, by, _ := strings.Cut(run.Result.Output, "by ")
	return by
}

// One of two workers is killed in the middle of a hundred runs: all end, once, and
// those that it had on the other one.
func TestKilledWorker(t *testing.T) {
	const all = 100
	d := project(t)
	slow := d.worker(t, "a") // so that it has runs whenever it is stopped, however long that takes to say
	slow.Script = strings.Replace(slow.Script, "after: 200ms", "after: 1s", 1)
	a, b := slow.start(t), d.worker(t, "b").start(t)
	c := d.client(t)
	var ids []nestor.ID
	for i := range all {
		ids = append(ids, submit(t, c, nestor.Task{Input: fmt.Sprint("task ", i), Limits: nestor.Limits{Resumes: 10}}))
	}
	until(t, c, ids[all/4], func(run api.Run) bool { return run.State.Ended() })
	victims := freeze(t, c, a, ids)
	a.kill()
	by := map[string]int{}
	for i, id := range ids {
		run := wait(t, c, id)
		who := saidBy(run)
		by[who]++
		if slices.Contains(victims, id) && (who != "b" || run.Resumes == 0) {
			t.Errorf("task %d, which the killed worker had, was done by %s after %d losses", i, who, run.Resumes)
		}
	}
	t.Logf("done %v; %d were taken over", by, len(victims))
	if by["a"]+by["b"] != all || by["a"] == 0 {
		t.Errorf("done by %v", by)
	}
	b.stop(t)
	d.stop(t)
	onceEach(t, d.Dir, ids)
}

// freeze stops a worker's process while it has runs, and returns those.
func freeze(t *testing.T, c *api.Client, p *playing, ids []nestor.ID) []nestor.ID {
	t.Helper()
	lacks := func(id nestor.ID) bool {
		run := look(t, c, id)
		return run.Worker != p.Name || run.State.Ended()
	}
	for limit := bound(t); limit.Err() == nil; {
		has := slices.DeleteFunc(slices.Clone(ids), lacks)
		if len(has) == 0 {
			continue
		}
		if err := pause(p.cmd.Process); err != nil {
			t.Fatal(err)
		}
		// Its last words may have been on their way.
		has = slices.DeleteFunc(slices.DeleteFunc(has, lacks), lacks)
		if len(has) > 0 {
			return has
		}
		if err := unpause(p.cmd.Process); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("%s has no run", p.Name)
	return nil
}

func look(t *testing.T, c *api.Client, id nestor.ID) api.Run {
	t.Helper()
	run, err := c.Run(bound(t), id)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// onceEach checks in the log of a daemon that has ended that the runs have, once
// each, and that no event is missing.
func onceEach(t *testing.T, dir string, ids []nestor.ID) {
	t.Helper()
	b, err := broker.Open(bound(t), broker.Options{Dir: filepath.Join(dir, ".nestor", "broker")})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	log := eventlog.New(b, eventlog.Options{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- log.Run(ctx) }()
	defer func() { stop(); <-done }()
	ends, next, last := map[nestor.ID]int{}, map[string]uint64{}, eventlog.Position(0)
	for e, err := range log.Read(bound(t), eventlog.Filter{}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Position <= last || e.N != next[e.Run] {
			t.Fatalf("run %s: event %d at %d; %d was next, after %d", e.Run, e.N, e.Position, next[e.Run], last)
		}
		last, next[e.Run] = e.Position, e.N+1
		event, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if _, end := event.(*nestor.ExecutionComplete); end {
			ends[nestor.ID(e.Run)]++
		}
	}
	for _, id := range ids {
		if ends[id] != 1 {
			t.Errorf("run %s ended %d times in the log", id, ends[id])
		}
	}
	if len(ends) != len(ids) {
		t.Errorf("%d runs ended in the log, of %d", len(ends), len(ids))
	}
}

// A worker that is ended hands its runs over at once, and it does not count as a
// loss.
func TestWorkerHandsOver(t *testing.T) {
	d := project(t)
	a := d.worker(t, "a").start(t)
	c := d.client(t)
	id := submit(t, c, nestor.Task{Input: "task", Provider: "scripted"})
	hang := submit(t, c, nestor.Task{Input: "hang"})
	wait(t, c, id)
	until(t, c, hang, runsOn("a"))
	a.stop(t)
	b := d.worker(t, "b")
	b.Script = strings.Replace(says("b"), "when: hang", "when: never", 1)
	b.start(t)
	if run := wait(t, c, hang); saidBy(run) != "b" || run.Resumes != 0 || run.Attempt != 2 {
		t.Errorf("done by %s, attempt %d after %d losses", saidBy(run), run.Attempt, run.Resumes)
	}
	for e, err := range c.Events(bound(t), hang, api.EventsQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := e.(*nestor.ChatStart); ok && e.Message != "hang" {
			t.Errorf("the run should begin anew, in a new copy, and was told %q", e.Message)
		}
	}
	if left, err := os.ReadDir(filepath.Join(a.Dir, ".nestor", "worker", "runs")); err != nil || len(left) != 0 {
		t.Errorf("the ended worker leaves %v, %v", left, err)
	}
}

func TestLabelChoosesWorker(t *testing.T) {
	d := project(t)
	d.worker(t, "plain").start(t)
	special := d.worker(t, "special")
	special.Labels = []string{"gpu"}
	c := d.client(t)
	var ids []nestor.ID
	for range 8 {
		ids = append(ids, submit(t, c, nestor.Task{Input: "task", Label: "gpu"}))
	}
	wait(t, c, submit(t, c, nestor.Task{Input: "task"})) // there is somebody who works
	if run, err := c.Run(bound(t), ids[0]); err != nil || run.State != nestor.Queued || !strings.Contains(run.Doing, "a worker with label gpu") {
		t.Errorf("nobody has the label, and the run is %s, %q, %v", run.State, run.Doing, err)
	}
	special.start(t)
	for _, id := range ids {
		if who := saidBy(wait(t, c, id)); who != "special" {
			t.Errorf("done by %s", who)
		}
	}
}

func TestWorkerWithWrongToken(t *testing.T) {
	d := project(t)
	err := daemon.Work(bound(t), daemon.WorkOptions{Dir: t.TempDir(), URL: "nats://" + d.addr, Token: "guessed"})
	if !errors.Is(err, broker.ErrRefused) || !strings.Contains(err.Error(), ".nestor/broker.token") || strings.Contains(err.Error(), "guessed") {
		t.Errorf("with a wrong token: %v", err)
	}
}

// Two workers in one folder would remove each other's copies.
func TestTwoWorkersInOneHome(t *testing.T) {
	d := project(t)
	w := d.worker(t, "a").start(t)
	err := daemon.Work(bound(t), daemon.WorkOptions{Dir: w.Dir, URL: w.URL, Token: w.Token})
	if !errors.Is(err, broker.ErrLocked) {
		t.Errorf("the second one: %v", err)
	}
}

// A worker whose daemon is away waits for it, and works again when it is back.
func TestWorkerWaitsForBroker(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	m := machine{Dir: t.TempDir(), Listen: addr, Name: "daemon"}
	d := m.start(t)
	w := d.worker(t, "a")
	d.kill()
	ctx, stop := context.WithCancel(bound(t))
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { // it begins when nobody is there
		done <- daemon.Work(ctx, daemon.WorkOptions{
			Dir: w.Dir, URL: w.URL, Token: w.Token, Worker: daemon.Worker{Provider: "scripted"}, Lease: remoteLease, Ready: func() { close(ready) },
		})
	}()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for i := range 2 {
		if i > 0 {
			d.kill()
		}
		d = m.start(t)
		c := d.client(t)
		if run := wait(t, c, submit(t, c, nestor.Task{Input: "hello"})); run.State != nestor.Success {
			t.Errorf("the run is %s: %s", run.State, run.Doing)
		}
		<-ready
	}
}

const editing = `
rules:
  - turns:
      - tools: [{name: Write, input: {file_path: new.txt, content: new}}]
      - tools: [{name: Bash, input: {command: "echo more >> ../a.txt; rm ../b.txt; cat ../a.txt", description: edit}}]
      - {text: "it says {{.ToolResult}}"}
`

// What a run changes in its copy comes back, and the worker's own folder stays as
// it is.
func TestFilesComeBack(t *testing.T) {
	d := project(t)
	w := d.worker(t, "a")
	w.Model = scriptmodel.Start(t, editing).URL
	for _, dir := range []string{d.Dir, w.Dir} {
		for name, content := range map[string]string{"a.txt": "one\n", "b.txt": "two\n", "sub/c.txt": "three\n"} {
			write(t, filepath.Join(dir, name), content)
		}
	}
	w.start(t)
	c := d.client(t)
	run := wait(t, c, submit(t, c, nestor.Task{Input: "edit", Provider: "api", Dir: filepath.Join(d.Dir, "sub"), Data: json.RawMessage(`{"tools": ["Write", "Bash"]}`)}))
	if run.State != nestor.Success || run.Result.Output != "it says one\nmore" {
		t.Fatalf("the run is %s, %q, %s", run.State, run.Result.Output, run.Doing)
	}
	want := []api.Change{{Path: "sub/new.txt", Action: "write"}, {Path: "a.txt", Action: "edit"}, {Path: "b.txt", Action: "remove"}}
	if told, ok := api.ChangesOf(run.Result); !ok || told.Count != 3 || !slices.Equal(told.Files, want) || told.Ref == "" || told.Size == 0 {
		t.Errorf("the result tells of %+v", told)
	}
	var told []api.Change
	for e, err := range c.Events(bound(t), run.ID, api.EventsQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := e.(*nestor.WorkspaceWrite); ok {
			told = append(told, api.Change{Path: e.Path, Action: e.Action})
		}
	}
	if !slices.Equal(told, want) {
		t.Errorf("the log tells of %+v", told)
	}
	if got := read(t, w.Dir, "a.txt") + read(t, w.Dir, "b.txt"); got != "one\ntwo\n" {
		t.Errorf("the worker's folder has %q", got)
	}
	write(t, filepath.Join(d.Dir, "b.txt"), "mine\n")
	_, err := workspace.Apply(bound(t), d.Dir, fetch(t, c, run.ID), workspace.ApplyOptions{})
	if conflict, ok := errors.AsType[*workspace.ConflictError](err); !ok || !slices.Equal(conflict.Paths, []string{"b.txt"}) {
		t.Errorf("applied to another folder: %v", err)
	}
	write(t, filepath.Join(d.Dir, "b.txt"), "two\n")
	if _, err := workspace.Apply(bound(t), d.Dir, fetch(t, c, run.ID), workspace.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, d.Dir, "a.txt") + read(t, d.Dir, "b.txt") + read(t, d.Dir, "sub/new.txt"); got != "one\nmore\nnew" {
		t.Errorf("the project has %q", got)
	}
	for ctx := bound(t); ; { // the copy goes when the end is on record
		left, err := os.ReadDir(filepath.Join(w.Dir, ".nestor", "worker", "runs"))
		if err != nil || ctx.Err() != nil {
			t.Fatalf("the worker keeps %v, %v", left, err)
		}
		if len(left) == 0 {
			break
		}
	}

	// What is not on the worker is refused there, what it cannot have by the daemon.
	write(t, filepath.Join(d.Dir, "here", "only.txt"), "")
	run = wait(t, c, submit(t, c, nestor.Task{Input: "x", Provider: "scripted", Dir: filepath.Join(d.Dir, "here")}))
	if run.State != nestor.Error || !strings.Contains(run.Error.Message, `folder "here" of the project`) {
		t.Errorf("in a folder that the worker has not: %s, %v", run.State, run.Error)
	}
	if _, err := c.Changes(bound(t), run.ID); !isProblem(err, api.TypeNoChanges) {
		t.Errorf("changes of a run without: %v", err)
	}
	if _, err := c.Submit(bound(t), api.Submission{Task: nestor.Task{Input: "x", Dir: t.TempDir()}}); err == nil || !strings.Contains(err.Error(), "outside of the project") {
		t.Errorf("in a folder outside of the project: %v", err)
	}
}

// What a killed worker's runs left running ends when a worker is there again.
func TestWorkerSweepsWhatAKilledOneLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the environment of processes is read on Linux alone")
	}
	d := project(t)
	w := d.worker(t, "a")
	w.Model = scriptmodel.Start(t, `
rules:
  - turns: [{tools: [{name: Bash, input: {command: "sleep 1000 & sleep 1000 & touch begun; wait", description: wait}}]}]
`).URL
	killed := w.start(t)
	c := d.client(t)
	id := submit(t, c, nestor.Task{Input: "x", Provider: "api", Data: json.RawMessage(`{"tools": ["Bash"]}`)})
	for ctx := bound(t); ; {
		begun, err := filepath.Glob(filepath.Join(w.Dir, ".nestor", "worker", "runs", string(id)+"-*", "begun"))
		if err != nil || ctx.Err() != nil {
			t.Fatalf("it does not begin: %v", err)
		}
		if len(begun) > 0 {
			break
		}
	}
	killed.kill()
	if err := c.Cancel(bound(t), id, api.Cancellation{Now: true}); err != nil {
		t.Fatal(err)
	}
	w.start(t)
	if left := leftovers(t, w.Dir); len(left) != 0 {
		t.Errorf("alive: %q", left)
	}
}

func isProblem(err error, kind string) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Type == kind
}

func fetch(t *testing.T, c *api.Client, id nestor.ID) io.Reader {
	t.Helper()
	archive, err := c.Changes(bound(t), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { archive.Close() })
	return archive
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, []byte(content), 0o666)); err != nil {
		t.Fatal(err)
	}
}

// read returns what a file holds, empty if there is none.
func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}
