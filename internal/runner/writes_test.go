package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
)

// notebook is a host that writes down which files are changed.
type notebook struct {
	Host
	lines []string
}

func (n *notebook) Append(_ context.Context, events ...nestor.Event) error {
	for _, e := range events {
		switch e := e.(type) {
		case *nestor.WorkspaceWrite:
			n.lines = append(n.lines, e.Agent+" "+e.Action+" "+e.Path)
		case *nestor.ExecutionProgress:
			n.lines = append(n.lines, e.Activity)
		}
	}
	return nil
}

// eyes is a watcher that sees what a test says.
type eyes struct{ see chan [2]string }

func (e eyes) Run(ctx context.Context, report func(path, action string)) error {
	for {
		select {
		case w := <-e.see:
			report(w[0], w[1])
		case <-ctx.Done():
			return nil
		}
	}
}

// sees has the watcher report a change, and waits until that is dealt with.
func (e eyes) sees(path, action string) {
	e.see <- [2]string{path, action}
	synctest.Wait()
}

func (e eyes) Sync(context.Context) error { return nil }

// watched returns writes that are being watched, and their watcher.
func watched(t *testing.T) (*writes, eyes, *notebook) {
	t.Helper()
	book, e := &notebook{}, eyes{make(chan [2]string)}
	c := newConversation(Run{}, book)
	c.agent = "ada"
	w := newWrites(Place{Dir: "/p/sub", Below: "sub", Watch: func(context.Context) (Watcher, error) { return e, nil }}, c)
	w.begin(t.Context())
	return w, e, book
}

// tell appends what a call that returned has changed.
func tell(t *testing.T, w *writes, id string, success bool) {
	t.Helper()
	if e := w.returned(id, success); e != nil {
		if err := w.talk.say(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAChangeThatToolAndWatcherSeeIsToldOnce(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(t *testing.T, w *writes, e eyes)
		want []string
	}{
		{"the tool first", func(t *testing.T, w *writes, e eyes) {
			w.called("ada", "Write", "1", []byte(`{"file_path":"/p/sub/a"}`))
			tell(t, w, "1", true)
			e.sees("a", "edit")
		}, []string{"ada write sub/a"}},
		{"the watcher first", func(t *testing.T, w *writes, e eyes) {
			w.called("ada", "Write", "1", []byte(`{"file_path":"a"}`))
			e.sees("a", "edit")
			tell(t, w, "1", true)
		}, []string{"ada edit sub/a"}},
		{"the tool fails, and wrote", func(t *testing.T, w *writes, e eyes) {
			w.called("helper", "Edit", "1", []byte(`{"file_path":"a"}`))
			e.sees("a", "edit")
			tell(t, w, "1", false)
		}, []string{"helper edit sub/a"}},
		{"the tool fails", func(t *testing.T, w *writes, _ eyes) {
			w.called("ada", "Edit", "1", []byte(`{"file_path":"a"}`))
			tell(t, w, "1", false)
		}, nil},
		{"the tool never returns", func(t *testing.T, w *writes, e eyes) {
			w.called("ada", "NotebookEdit", "1", []byte(`{"notebook_path":"a"}`))
			e.sees("a", "edit")
		}, []string{"ada edit sub/a"}},
		{"a command later", func(t *testing.T, w *writes, e eyes) {
			w.called("ada", "Write", "1", []byte(`{"file_path":"a"}`))
			tell(t, w, "1", true)
			e.sees("a", "write")
			e.sees("a", "edit")
		}, []string{"ada write sub/a", "ada edit sub/a"}},
		{"a command long after a write that nobody saw", func(t *testing.T, w *writes, e eyes) {
			w.called("ada", "Write", "1", []byte(`{"file_path":"a"}`))
			tell(t, w, "1", true)
			time.Sleep(echoFor)
			e.sees("a", "edit")
		}, []string{"ada write sub/a", "ada edit sub/a"}},
		{"elsewhere", func(t *testing.T, w *writes, _ eyes) {
			w.called("ada", "Write", "1", []byte(`{"file_path":"/q/STATE.md"}`))
			tell(t, w, "1", true)
		}, []string{"ada write /q/STATE.md"}},
		{"what is no path", func(t *testing.T, w *writes, _ eyes) {
			w.called("ada", "Write", "1", []byte(`{"file_path":3}`))
			w.called("ada", "Read", "2", []byte(`{"file_path":"a"}`))
			tell(t, w, "1", true)
			tell(t, w, "2", true)
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, e, book := watched(t)
				test.do(t, w, e)
				synctest.Wait()
				if err := w.end(t.Context(), time.Second); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(book.lines, test.want) {
					t.Errorf("told are %q, want %q", book.lines, test.want)
				}
			})
		})
	}
}

// A command that changes very many files does not fill the log.
func TestWritesOfCommandsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, e, book := watched(t)
		for i := range maxWrites + 10 {
			e.see <- [2]string{fmt.Sprint(i), "write"}
		}
		synctest.Wait()
		if err := w.end(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if len(book.lines) != maxWrites+1 || book.lines[maxWrites] != "it has changed 5000 files; more are not told one by one" {
			t.Errorf("%d are told, the last is %q", len(book.lines), book.lines[len(book.lines)-1])
		}
	})
}

// Where nobody can watch, commands go on.
func TestFolderThatCannotBeWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConversation(Run{}, &notebook{})
		w := newWrites(Place{Watch: func(context.Context) (Watcher, error) { return nil, context.DeadlineExceeded }}, c)
		w.begin(t.Context())
		w.begin(t.Context())
		if err := w.end(t.Context(), time.Second); err != context.DeadlineExceeded {
			t.Errorf("it ended with %v", err)
		}
	})
}

// A folder is watched from the first call on that may change it: not from one of
// the host's own tools.
func TestFolderIsWatchedFromTheFirstCommand(t *testing.T) {
	book := &notebook{}
	c := newConversation(Run{Servers: map[string]agent.MCPServer{"nestor": {}}}, book)
	looked := 0
	w := newWrites(Place{Dir: "/p", Watch: func(context.Context) (Watcher, error) {
		looked++
		return nil, errors.New("not here")
	}}, c)
	call := w.hook(true).Func
	for _, step := range []struct {
		tool string
		want int
	}{{"mcp__nestor__spawn", 0}, {"mcp__nestorian__x", 1}, {"Bash", 1}} {
		if out, err := call(t.Context(), &claude.PreToolUseInput{Tool: step.tool}); out != nil || err != nil {
			t.Errorf("%s: %v, %v", step.tool, out, err)
		}
		if looked != step.want {
			t.Errorf("after %s it was looked at %d times, want %d", step.tool, looked, step.want)
		}
	}
	if err := w.end(t.Context(), time.Second); err == nil {
		t.Error("nobody is told that it cannot be watched")
	}
}
