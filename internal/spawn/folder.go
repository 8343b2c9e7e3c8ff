package spawn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
)

// Folders keeps a folder for each session, a root run with all below it: what
// scripts beside the agents look at. It is written by following the log, so what
// is in it can be lost and made again.
//
//	YYYYMMDD-HHMM-topic-ID/   when the root was submitted, what about, the end of its id
//	  .agents/RUN.json        where a run stands: pid (of the process that has it), parent, state
//	  results/RUN.json        what came of it
//	  results/RUN.txt         its output, if that is too long for RUN.json
//	  signals/RUN.done        empty; or RUN.fail if it is no success. Made last
//
// Each file appears whole or not at all. Methods may be called from any goroutine.
type Folders struct {
	dir   string
	topic func(ctx context.Context, root nestor.ID) string

	mu   sync.Mutex           // guards what follows
	dirs map[nestor.ID]string // of sessions whose root was not seen to end; of some others
}

// NewFolders returns the folders in dir, which is made when it is needed. The topic
// of a session is what its root is asked.
func NewFolders(dir string, topic func(ctx context.Context, root nestor.ID) string) *Folders {
	return &Folders{dir: dir, topic: topic, dirs: map[nestor.ID]string{}}
}

// maxDirs is how many names of folders are remembered. The others are found anew.
const maxDirs = 4096

// Session returns the folder of a session, which is there then.
func (f *Folders) Session(ctx context.Context, root nestor.ID) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if dir := f.dirs[root]; dir != "" {
		if _, err := os.Stat(dir); err == nil {
			return dir, nil
		}
	}
	dir, err := f.find(ctx, root)
	if err != nil {
		return "", fmt.Errorf("making the folder of session %s: %w", root, err)
	}
	if len(f.dirs) >= maxDirs {
		clear(f.dirs)
	}
	f.dirs[root] = dir
	return dir, nil
}

// find returns the folder of a root that there is, or makes one.
func (f *Folders) find(ctx context.Context, root nestor.ID) (string, error) {
	if _, err := nestor.ParseID(string(root)); err != nil {
		return "", err
	}
	topic, tail := f.topic(ctx, root), "-"+string(root)[len(root)-8:]
	dir := filepath.Join(f.dir, root.Time().Local().Format("20060102-1504")+"-"+slug(topic)+tail)
	if topic == "" { // it is not known any more, and its folder may have been named by it
		entries, err := os.ReadDir(f.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		for _, e := range entries {
			if e.IsDir() && strings.HasSuffix(e.Name(), tail) {
				dir = filepath.Join(f.dir, e.Name())
			}
		}
	}
	for _, sub := range []string{".agents", "results", "signals"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// slug returns the first words of a text as a part of a file's name.
func slug(text string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(clip(text, 200)) {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= 40 {
			break
		}
	}
	if name := strings.Trim(b.String(), "-"); name != "" {
		return name
	}
	return "run"
}

// agentFile is where a run stands.
type agentFile struct {
	Run     nestor.ID    `json:"run"`
	Parent  nestor.ID    `json:"parent,omitempty"`
	Agent   string       `json:"agent,omitempty"`
	Depth   int          `json:"depth"`
	PID     int          `json:"pid,omitempty"` // of the process that has it; zero if none has
	State   nestor.State `json:"state"`
	Updated time.Time    `json:"updated"`
}

// resultFile is what came of a run.
type resultFile struct {
	Run   nestor.ID `json:"run"`
	Root  nestor.ID `json:"root"`
	Depth int       `json:"depth"`
	Agent string    `json:"agent,omitempty"`
	nestor.Result
}

// Noted returns one event of each type that [Folders.Take] makes something of.
func Noted() []nestor.Event { return noted }

var noted = []nestor.Event{
	(*nestor.RunQueued)(nil), (*nestor.ExecutionStart)(nil), (*nestor.RunWaiting)(nil), (*nestor.RunResumed)(nil), (*nestor.RunRetry)(nil), (*nestor.ExecutionComplete)(nil),
}

// Take writes what an event says. Events of a run come in order; to take one again
// changes nothing. The pid is of the process that executes runs.
func (f *Folders) Take(ctx context.Context, event nestor.Event, pid int) error {
	h := event.Head()
	if _, err := nestor.ParseID(string(h.Run)); err != nil {
		return err
	}
	change := func(do func(*agentFile)) error {
		dir, err := f.Session(ctx, h.Root)
		if err != nil {
			return err
		}
		return changeAgent(filepath.Join(dir, ".agents", string(h.Run)+".json"), h, do)
	}
	switch e := event.(type) {
	case *nestor.RunQueued:
		return change(func(a *agentFile) { a.Parent, a.Agent, a.State = e.Parent, e.Agent, nestor.Queued })
	case *nestor.ExecutionStart:
		return change(func(a *agentFile) { a.Agent, a.State, a.PID = e.Agent, nestor.Running, pid })
	case *nestor.RunWaiting:
		return change(func(a *agentFile) { a.State = nestor.Waiting })
	case *nestor.RunResumed:
		return change(func(a *agentFile) { a.State = nestor.Running })
	case *nestor.RunRetry:
		return change(func(a *agentFile) { a.State, a.PID = nestor.Waiting, 0 })
	case *nestor.ExecutionComplete:
		return f.complete(ctx, e)
	}
	return nil
}

// complete writes what came of a run, and the signal last.
func (f *Folders) complete(ctx context.Context, e *nestor.ExecutionComplete) error {
	dir, err := f.Session(ctx, e.Root)
	if err != nil {
		return err
	}
	r := resultFile{Run: e.Run, Root: e.Root, Depth: e.Depth, Agent: e.Agent}
	if e.Result != nil {
		r.Result = *e.Result
	}
	r.Status, r.Error = e.Status, e.Error
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := writeWhole(filepath.Join(dir, "results", string(e.Run)+".json"), append(data, '\n')); err != nil {
		return err
	}
	err = changeAgent(filepath.Join(dir, ".agents", string(e.Run)+".json"), e.Head(), func(a *agentFile) { a.State, a.PID = e.Status, 0 })
	if err != nil {
		return err
	}
	signal := ".fail"
	if e.Success {
		signal = ".done"
	}
	if err := os.WriteFile(filepath.Join(dir, "signals", string(e.Run)+signal), nil, 0o600); err != nil { // what is empty is whole
		return err
	}
	if e.Run == e.Root {
		f.forget(e.Root)
	}
	return nil
}

// forget forgets the name of a session's folder: little comes when its root has
// ended.
func (f *Folders) forget(root nestor.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if delete(f.dirs, root); len(f.dirs) == 0 {
		f.dirs = map[nestor.ID]string{} // one keeps the room that it once needed
	}
}

// Output keeps the whole output of a run, and returns where.
func (f *Folders) Output(ctx context.Context, root, run nestor.ID, output string) (string, error) {
	dir, err := f.Session(ctx, root)
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "results", string(run)+".txt")
	return name, writeWhole(name, []byte(output))
}

// changeAgent changes where a run stands. One that has ended stays so.
func changeAgent(name string, h *nestor.Header, do func(*agentFile)) error {
	a := agentFile{Run: h.Run, Depth: h.Depth}
	data, err := os.ReadFile(name)
	if err == nil && json.Unmarshal(data, &a) != nil {
		a = agentFile{Run: h.Run, Depth: h.Depth} // what somebody else wrote there
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if a.State.Ended() {
		return nil
	}
	do(&a)
	a.Updated = h.Time
	if data, err = json.Marshal(a); err != nil {
		return err
	}
	return writeWhole(name, append(data, '\n'))
}

// writeWhole writes a file, whole or not at all.
func writeWhole(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// Position returns up to where the log was taken, and whether that was ever noted.
func (f *Folders) Position() (position uint64, noted bool) {
	var p struct{ Position uint64 }
	data, err := os.ReadFile(filepath.Join(f.dir, ".position"))
	if err != nil || json.Unmarshal(data, &p) != nil {
		return 0, false
	}
	return p.Position, true
}

// Taken takes note of up to where the log was taken.
func (f *Folders) Taken(position uint64) error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	return writeWhole(filepath.Join(f.dir, ".position"), fmt.Appendf(nil, "{\"position\":%d}\n", position))
}
