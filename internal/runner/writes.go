package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/claude"
)

const (
	lookFor   = 2 * time.Second // how long a command waits until its folder was looked at
	echoFor   = 3 * time.Second // how long after a tool's end a watcher may see what it wrote
	maxWrites = 5000            // of one run that a watcher may tell
)

// writes says which files a run changes: those that tools name, and those that
// a watcher sees. A change that both tell of is one event.
//
// The folder is watched from the first call on that may change files which it
// does not name, such as Bash: that call waits until the folder was looked at, and
// each that follows until all is told that was changed before. So a run that makes
// no such call costs nothing, however large its folder is.
type writes struct {
	place Place
	talk  *conversation
	ready chan struct{} // closed when the folder was looked at, or cannot be
	eyes  Watcher       // set before that; nil if it cannot

	mu    sync.Mutex           // guards what follows
	agent string               // whose commands are watched
	stop  context.CancelFunc   // ends the watching
	quit  context.CancelFunc   // ends the telling of what was seen
	done  chan error           // what watching ended with, sent once; nil if it was not begun
	calls map[string]*written  // of tools that write, until they return, by their id
	echo  map[string]time.Time // until when a watcher's word on a path is nothing new
	count int                  // events of the watcher
}

// written is what a call of a tool writes.
type written struct {
	agent, path, action string
	seen                string // the action that the watcher has seen; empty if none
}

func newWrites(place Place, talk *conversation) *writes {
	return &writes{place: place, talk: talk, ready: make(chan struct{}), calls: map[string]*written{}, echo: map[string]time.Time{}}
}

// The tools that may change files which they do not name, without those of servers and
// with them. A hook is about these alone, for it costs the CLI a question and an answer.
var (
	commands    = claude.Pattern(`^(Bash|PowerShell|REPL|Monitor|Skill)$`)
	allCommands = claude.Pattern(`^(Bash|PowerShell|REPL|Monitor|Skill|mcp__.*)$`)
)

// hook has the folder looked at before the first call that may change anything. There
// are servers besides those of the host if others is true.
func (w *writes) hook(others bool) claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput] {
	match := commands
	if others {
		match = allCommands
	}
	return claude.Hook[claude.PreToolUseInput, claude.PreToolUseOutput]{
		Match: match,
		Func: func(ctx context.Context, in *claude.PreToolUseInput) (*claude.PreToolUseOutput, error) {
			if !w.harmless(in.Tool) {
				w.begin(ctx)
			}
			return nil, nil
		},
	}
}

// harmless tells whether a tool is one of the host's own, which change no files.
func (w *writes) harmless(tool string) bool {
	for name := range w.talk.run.Servers {
		if strings.HasPrefix(tool, "mcp__"+name+"__") {
			return true
		}
	}
	return false
}

// begin begins to watch, and waits until what was changed before is told.
func (w *writes) begin(ctx context.Context) {
	w.mu.Lock()
	if w.done == nil {
		telling, quit := context.WithCancel(context.WithoutCancel(ctx)) // which ends with the call
		watching, stop := context.WithCancel(telling)
		w.agent, w.stop, w.quit, w.done = w.talk.agent, stop, quit, make(chan error, 1)
		go func() { w.done <- w.watch(watching, telling) }()
	}
	w.mu.Unlock()
	ctx, stop := context.WithTimeout(ctx, lookFor)
	defer stop()
	select {
	case <-w.ready:
		if w.eyes != nil {
			w.eyes.Sync(ctx) // late or never: the call is not kept from going on
		}
	case <-ctx.Done():
	}
}

// begun tells whether there was a call that may have changed files which it does not
// name.
func (w *writes) begun() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done != nil
}

// watch watches until the first context ends, and tells of it until the second
// does.
func (w *writes) watch(watching, telling context.Context) error {
	eyes, err := w.place.Watch(watching)
	ended := watching.Err() != nil // before who waits goes on, who may end it
	if err == nil {
		w.eyes = eyes
	}
	close(w.ready)
	switch {
	case err == nil:
	case ended:
		return nil
	default:
		return err
	}
	return eyes.Run(watching, func(path, action string) { w.saw(telling, path, action) })
}

// end waits until all that was changed is on record, but not longer than grace for
// the log.
func (w *writes) end(ctx context.Context, grace time.Duration) error {
	w.mu.Lock()
	done, stop, quit := w.done, w.stop, w.quit
	w.mu.Unlock()
	if done == nil {
		return nil
	}
	stop()
	late := time.AfterFunc(grace, quit)
	err := <-done
	late.Stop()
	quit()
	ctx, stop = context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls { // that never returned
		if c.seen != "" && err == nil {
			err = w.talk.say(ctx, &nestor.WorkspaceWrite{Agent: c.agent, Path: c.path, Action: c.seen})
		}
	}
	return err
}

// called takes note of a tool call.
func (w *writes) called(agent, tool, id string, input json.RawMessage) {
	action := "edit"
	switch tool {
	case "Write":
		action = "write"
	case "Edit", "MultiEdit", "NotebookEdit":
	default:
		return
	}
	var in struct {
		File     string `json:"file_path"`
		Notebook string `json:"notebook_path"`
	}
	if json.Unmarshal(input, &in) != nil || in.File+in.Notebook == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[id] = &written{agent: agent, path: w.local(in.File + in.Notebook), action: action}
}

// local returns a path as events have it: with slashes, and relative to the project
// if it is in the folder.
func (w *writes) local(name string) string {
	if !filepath.IsAbs(name) {
		return path.Join(w.place.Below, filepath.ToSlash(name))
	}
	if rel, err := filepath.Rel(w.place.Dir, name); err == nil && filepath.IsLocal(rel) {
		return path.Join(w.place.Below, filepath.ToSlash(rel))
	}
	return name
}

// returned returns what a call has changed; nil means nothing.
func (w *writes) returned(id string, success bool) nestor.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.calls[id]
	delete(w.calls, id)
	if c == nil || !success && c.seen == "" {
		return nil
	}
	switch {
	case c.seen != "":
		c.action = c.seen
	case w.done != nil:
		w.echo[c.path] = time.Now().Add(echoFor)
	}
	return &nestor.WorkspaceWrite{Agent: c.agent, Path: c.path, Action: c.action}
}

// saw says what the watcher has seen, unless a tool does.
func (w *writes) saw(ctx context.Context, name, action string) {
	name = path.Join(w.place.Below, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls {
		if c.path == name {
			c.seen = action
			return
		}
	}
	until, echoed := w.echo[name]
	delete(w.echo, name)
	if echoed && time.Now().Before(until) {
		return
	}
	// What cannot be told is missing, and so says the log's next failure.
	switch w.count++; {
	case w.count <= maxWrites:
		w.talk.say(ctx, &nestor.WorkspaceWrite{Agent: w.agent, Path: name, Action: action})
	case w.count == maxWrites+1:
		w.talk.say(ctx, &nestor.ExecutionProgress{
			ExecutionID: string(w.talk.run.ID), Agent: w.agent, Activity: fmt.Sprintf("it has changed %d files; more are not told one by one", maxWrites),
		})
	}
}
