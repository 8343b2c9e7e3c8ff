//go:build unix

package claude_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
)

// lives are CLIs that tell what their host does to them.
var lives = map[string]claudetest.Script{
	"tells how it was started": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		dir, _ := os.Getwd()
		c.Send(map[string]any{"type": "system", "subtype": "notification", "key": "dir", "text": dir})
		c.Send(map[string]any{"type": "system", "subtype": "notification", "key": "args", "text": strings.Join(c.Args(), "\n")})
		c.SendRaw(success(p, "done"))
	},
	"tells what it hears": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		for {
			l, err := c.Next()
			if err != nil {
				return
			}
			c.Send(map[string]any{"type": "system", "subtype": "notification", "key": "heard", "text": string(l.Raw)})
			c.SendRaw(success(l, "heard"))
		}
	},
	"does not tell its version": func(c *claudetest.Conn) {
		l, _ := c.Next()
		c.Answer(l, map[string]any{})
		atEnd(c)
	},
	"answers in full": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		for _, line := range []string{
			`{"type":"system","subtype":"init","session_id":"s","model":"m"}`,
			`{"type":"assistant","message":{"id":"m1","role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"t1","name":"Read","input":{"file_path":"/a"}}]}}`,
			`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"a"}]}}`,
			`{"type":"assistant","message":{"id":"m2","role":"assistant","content":[{"type":"text","text":"It is a."}]}}`,
		} {
			c.SendRaw(line)
		}
		c.SendRaw(fmt.Sprintf(`{"type":"result","subtype":"success","result":"It is a.","total_cost_usd":0.25,"user_message_uuid":%q}`, uuidOf(p)))
		atEnd(c)
	},
	"prints long lines on stderr": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		io.WriteString(c.Stderr, strings.Repeat("e", 200<<10))
		atEnd(c)
		io.WriteString(c.Stderr, " and the last words")
	},
	"asks for ever": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		c.Next()
		c.SendRaw(`{"type":"control_request","request_id":"p","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{},"tool_use_id":"t"}}`)
		for {
			if _, err := c.Next(); err != nil {
				return
			}
		}
	},
	"talks before it answers": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		l, _ := c.Next()
		for i := range 3 {
			c.SendRaw(fmt.Sprintf(`{"type":"system","subtype":"notification","text":"%d"}`, i))
		}
		c.Answer(l, map[string]any{"version": "1"})
		atEnd(c)
	},
	"uses an id again": func(c *claudetest.Conn) {
		c.AcceptInitialize()
		p, _ := c.Next()
		for range 2 {
			c.SendRaw(`{"type":"control_cancel_request","request_id":"p"}`)
			c.SendRaw(`{"type":"control_request","request_id":"p","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{},"tool_use_id":"t"}}`)
			l, err := c.Next()
			must(c, "the request is answered", err == nil && l.Type == "control_response" && l.ID == "p")
		}
		c.SendRaw(success(p, "done"))
		atEnd(c)
	},
}

// notes returns the texts of the notifications with that key.
func notes(messages []claude.Message, key string) (texts []string) {
	for _, m := range messages {
		if n, ok := m.(*claude.Notification); ok && n.Key == key {
			texts = append(texts, n.Text)
		}
	}
	return texts
}

// counted returns options for the fake CLI, started through a program that
// writes the arguments of each start to the file.
func counted(t *testing.T, script string) (opts claude.Options, starts func() []string) {
	t.Helper()
	opts = fake(script)
	dir := t.TempDir()
	file, path := filepath.Join(dir, "starts"), filepath.Join(dir, "claude")
	program := fmt.Sprintf("#!/bin/sh\necho \"start $*\" >> '%s'\nexec '%s' \"$@\"\n", file, opts.Path)
	if err := os.WriteFile(path, []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	opts.Path = path
	return opts, func() []string {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(data)), "\n")
	}
}

func TestStartAndClose(t *testing.T) {
	t.Parallel()
	t.Run("items 7, 133, 190, 191: one process, and nothing of it stays", func(t *testing.T) {
		t.Parallel()
		opts, starts := counted(t, "echo")
		s := start(t, opts)
		pid := s.Info().PID
		if !alive(pid) {
			t.Errorf("process %d does not run", pid)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			t.Errorf("process %d was not reaped", pid)
		}
		if n := starts(); len(n) != 1 {
			t.Errorf("started %q", n)
		}
	})
	t.Run("item 6: a CLI that does not tell its version is asked", func(t *testing.T) {
		t.Parallel()
		opts, starts := counted(t, "does not tell its version")
		opts.Log = slog.New(slog.DiscardHandler)
		start(t, opts).Close()
		if n := starts(); len(n) != 2 || n[1] != "start --version" {
			t.Errorf("started %q", n)
		}
	})
	t.Run("item 204: each start is a session of its own", func(t *testing.T) {
		t.Parallel()
		opts := fake("echo")
		a, b := start(t, opts), start(t, opts)
		if a.Info().PID == b.Info().PID {
			t.Error("both are the same process")
		}
		a.Close()
		if messages, err := collect(t, b.Prompt(bounded(t), "go")); err != nil || fmt.Sprint(results(messages)) != "[echo]" {
			t.Errorf("the other one: %q, %v", results(messages), err)
		}
	})
	t.Run("items 10, 196: nothing works behind the end", func(t *testing.T) {
		t.Parallel()
		s := start(t, fake("echo"))
		s.Close()
		ctx := bounded(t)
		for what, call := range map[string]func() error{
			"Send":         func() error { return s.Send(ctx, claude.UserMessage{Text: "x"}) },
			"Interrupt":    func() error { _, err := s.Interrupt(ctx); return err },
			"ReconnectMCP": func() error { return s.ReconnectMCP(ctx, "x") },
			"ToggleMCP":    func() error { return s.ToggleMCP(ctx, "x", true) },
			"StopTask":     func() error { return s.StopTask(ctx, "x") },
			"MCPStatus":    func() error { _, err := s.MCPStatus(ctx); return err },
			"ContextUsage": func() error { _, err := s.ContextUsage(ctx, ""); return err },
			"Messages":     func() error { _, err := collect(t, s.Messages()); return err },
			"Prompt":       func() error { _, err := collect(t, s.Prompt(ctx, "x")); return err },
		} {
			if err := call(); !errors.Is(err, claude.ErrClosed) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("item 204: closing again: %v", err)
		}
	})
	t.Run("item 205: a panic of the caller ends the process", func(t *testing.T) {
		t.Parallel()
		opts := fake("answers in full")
		own := "CLAUDETEST_OF=" + t.Name()
		opts.Env = append(opts.Env, own)
		func() {
			defer func() {
				if recover() != "enough" {
					t.Error("the panic is lost")
				}
			}()
			for range claude.Query(bounded(t), "go", opts) {
				panic("enough")
			}
		}()
		if left := processesNamed(t, own); len(left) > 0 {
			t.Errorf("still running: %v", left)
		}
	})
}

// The program of this test is a shell script, for another user may not run the
// test binary.
func TestOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("item 9: only root may start a process as somebody else: not tested")
	}
	t.Parallel()
	dir, err := os.MkdirTemp("", "claude-user-") // t.TempDir is for its owner alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "claude")
	program := `#!/bin/sh
read -r line
id=${line#*\"request_id\":\"}
id=${id%%\"*}
echo '{"type":"control_response","response":{"subtype":"success","request_id":"'$id'","response":{"claude_code_version":"` + claudetest.FakeVersion + `"}}}'
echo '{"type":"system","subtype":"notification","key":"uid","text":"'$(id -u) $(id -g)'"}'
cat > /dev/null
`
	if err := errors.Join(os.WriteFile(path, []byte(program), 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	s := start(t, claude.Options{Path: path, Dir: dir, User: "nobody"})
	s.CloseInput()
	messages, err := collect(t, s.Messages())
	if got := notes(messages, "uid"); err != nil || fmt.Sprint(got) != "[65534 65534]" {
		t.Errorf("item 9: the CLI runs as %v, %v", got, err)
	}
	if _, err := claude.Start(bounded(t), claude.Options{Path: path, User: "no such user"}); err == nil || !strings.Contains(err.Error(), "no such user") {
		t.Errorf("item 9: for a user that does not exist: %v", err)
	}
}

func TestStderrWithoutLineEnds(t *testing.T) {
	t.Parallel()
	opts := fake("prints long lines on stderr")
	var mu sync.Mutex
	var text strings.Builder
	opts.Stderr = func(line string) {
		mu.Lock()
		defer mu.Unlock()
		text.WriteString(line)
	}
	seen := func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
	s := start(t, opts)
	for ctx := bounded(t); len(seen()) < 64<<10; { // while the CLI runs and the line goes on
		if ctx.Err() != nil {
			t.Fatalf("item 127: of the long line only %d bytes came", len(seen()))
		}
	}
	s.Close()
	if got := seen(); len(got) < 200<<10 || !strings.HasSuffix(got, "last words") {
		t.Errorf("item 128: %d bytes that end in %q", len(got), got[max(0, len(got)-20):])
	}
}

func TestQueryInFull(t *testing.T) {
	t.Parallel()
	t.Run("items 184, 188, 197: messages have types and keep their order", func(t *testing.T) {
		t.Parallel()
		messages, err := collect(t, claude.Query(bounded(t), "go", fake("answers in full")))
		if err != nil || len(messages) != 5 {
			t.Fatalf("%d messages, %v", len(messages), err)
		}
		init, _ := messages[0].(*claude.Init)
		call, _ := messages[1].(*claude.Assistant)
		result, _ := messages[2].(*claude.User)
		answer, _ := messages[3].(*claude.Assistant)
		end, _ := messages[4].(*claude.Result)
		if init == nil || call == nil || result == nil || answer == nil || end == nil {
			t.Fatalf("got %T, %T, %T, %T, %T", messages[0], messages[1], messages[2], messages[3], messages[4])
		}
		uses := call.ToolUses()
		if call.Text() != "I look." || len(uses) != 1 || uses[0].Name != "Read" || uses[0].ID != "t1" || string(uses[0].Input) != `{"file_path":"/a"}` {
			t.Errorf("the call is %+v", call)
		}
		if answer.Text() != "It is a." || end.Result != "It is a." || end.TotalCostUSD != 0.25 {
			t.Errorf("the answer is %+v, the result %+v", answer, end)
		}
	})
	t.Run("items 185, 188, 202: options reach the CLI and stay as they are", func(t *testing.T) {
		t.Parallel()
		opts := fake("tells how it was started")
		opts.Dir, opts.Continue, opts.MaxBudgetUSD, opts.Model = t.TempDir(), true, 0.5, "m"
		opts.AutoApprove, opts.Skills = []string{"Read"}, []string{"s"}
		before := opts
		before.Env, before.AutoApprove, before.Skills = slices.Clone(opts.Env), slices.Clone(opts.AutoApprove), slices.Clone(opts.Skills)
		messages, err := collect(t, claude.Query(bounded(t), "go", opts))
		if err != nil {
			t.Fatal(err)
		}
		want, err := filepath.EvalSymlinks(opts.Dir)
		if got := notes(messages, "dir"); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("it was started in %q, want %s, %v", got, want, err)
		}
		args := strings.Split(strings.Join(notes(messages, "args"), ""), "\n")
		for _, flag := range []string{"--continue", "--max-budget-usd", "--model"} {
			if !slices.ContainsFunc(args, func(a string) bool { return a == flag || strings.HasPrefix(a, flag+"=") }) {
				t.Errorf("%s is missing in %q", flag, args)
			}
		}
		if !reflect.DeepEqual(opts, before) {
			t.Errorf("the options became %+v", opts)
		}
	})
	t.Run("item 2: nothing is looked for before it is needed", func(t *testing.T) {
		t.Parallel()
		opts, starts := counted(t, "answers in full")
		program, err := os.ReadFile(opts.Path)
		if err := errors.Join(err, os.Remove(opts.Path)); err != nil {
			t.Fatal(err)
		}
		query := claude.Query(bounded(t), "go", opts) // there is no CLI
		if err := os.WriteFile(opts.Path, program, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := collect(t, query); err != nil || len(starts()) != 1 {
			t.Errorf("started %q, %v", starts(), err)
		}
	})
	t.Run("item 188: a CLI that is not there", func(t *testing.T) {
		t.Parallel()
		_, err := collect(t, claude.Query(bounded(t), "go", claude.Options{Path: filepath.Join(t.TempDir(), "claude")}))
		if _, ok := errors.AsType[*claude.NotFoundError](err); !ok {
			t.Errorf("got %v", err)
		}
	})
	t.Run("items 192, 195: the prompt is sent", func(t *testing.T) {
		t.Parallel()
		s := start(t, fake("tells what it hears"))
		for _, m := range []claude.UserMessage{{Text: "hello"}, {Text: "again", SessionID: "mine"}} {
			messages, err := collect(t, s.Ask(bounded(t), m, claude.Answered))
			if err != nil {
				t.Fatal(err)
			}
			var line struct {
				Type      string
				SessionID *string `json:"session_id"`
				Message   struct{ Role, Content string }
			}
			if err := json.Unmarshal([]byte(strings.Join(notes(messages, "heard"), "")), &line); err != nil {
				t.Fatal(err)
			}
			if line.Type != "user" || line.Message.Role != "user" || line.Message.Content != m.Text || line.SessionID == nil || *line.SessionID != m.SessionID {
				t.Errorf("of %+v the CLI heard %+v", m, line)
			}
		}
	})
}

func TestCloseEndsCallbacks(t *testing.T) {
	t.Parallel()
	type key struct{}
	opts := fake("asks for ever")
	asked, ended := make(chan any, 1), make(chan error, 1)
	opts.CanUseTool = func(ctx context.Context, _ *claude.PermissionRequest) (claude.Decision, error) {
		asked <- ctx.Value(key{})
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return claude.Allow{}, nil
	}
	s, err := claude.Start(context.WithValue(bounded(t), key{}, "value"), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Send(bounded(t), claude.UserMessage{Text: "go"}); err != nil {
		t.Fatal(err)
	}
	if v := <-asked; v != "value" {
		t.Errorf("item 234: in the callback's context the value is %v", v)
	}
	s.Close()
	select {
	case err := <-ended:
		if !errors.Is(err, claude.ErrClosed) {
			t.Errorf("item 228: the callback was ended with %v", err)
		}
	default:
		t.Error("item 228: Close did not wait for the callback")
	}
}

func TestWhatWasSaidIsReadBehindClose(t *testing.T) {
	t.Parallel()
	s := start(t, fake("talks before it answers"))
	if _, err := s.BinaryVersion(bounded(t)); err != nil { // its answer comes behind the messages
		t.Fatal(err)
	}
	s.Close()
	messages, err := collect(t, s.Messages())
	if got := notes(messages, ""); fmt.Sprint(got) != "[0 1 2]" || !errors.Is(err, claude.ErrClosed) {
		t.Errorf("item 230: behind Close %q and %v were read", got, err)
	}
}

func TestRequestIDsAreForgotten(t *testing.T) {
	t.Parallel()
	opts := fake("uses an id again")
	asked := 0 // one after the other: the CLI waits for the first answer
	opts.CanUseTool = func(context.Context, *claude.PermissionRequest) (claude.Decision, error) {
		asked++
		return claude.Allow{}, nil
	}
	if _, err := collect(t, claude.Query(bounded(t), "go", opts)); err != nil || asked != 2 {
		t.Errorf("items 232, 233: the callback was asked %d times, %v", asked, err)
	}
}

// remote is a process that is not one: its CLI is a function.
type remote struct {
	stdin          *io.PipeWriter
	stdout, stderr *io.PipeReader
	exit           chan claude.Exit
	killed         chan struct{}
	kill           func()
}

// remotely returns options for a CLI that the function plays.
func remotely(cli func(stdin io.Reader, stdout io.Writer, killed <-chan struct{}) claude.Exit) claude.Options {
	return claude.Options{Spawn: func(context.Context, claude.Command) (claude.Process, error) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		errR, errW := io.Pipe()
		r := &remote{stdin: inW, stdout: outR, stderr: errR, exit: make(chan claude.Exit, 1), killed: make(chan struct{})}
		r.kill = sync.OnceFunc(func() { close(r.killed); inR.Close() })
		go func() {
			exit := cli(inR, outW, r.killed)
			inR.Close()
			outW.Close()
			errW.Close()
			r.exit <- exit
		}()
		return r, nil
	}}
}

func (r *remote) Stdin() io.WriteCloser { return r.stdin }
func (r *remote) Stdout() io.ReadCloser { return r.stdout }
func (r *remote) Stderr() io.ReadCloser { return r.stderr }
func (r *remote) Wait() claude.Exit     { return <-r.exit }
func (r *remote) Terminate() error      { return nil }
func (r *remote) Kill() error           { r.kill(); return nil }

func TestStartTakesAMinuteAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := remotely(func(stdin io.Reader, _ io.Writer, killed <-chan struct{}) claude.Exit {
			io.Copy(io.Discard, stdin)
			<-killed
			return claude.Exit{Code: -1, Signal: "killed"}
		})
		began := time.Now()
		_, err := claude.Start(t.Context(), opts)
		late := time.Since(began)
		// A minute, and twice the five seconds of grace that a CLI has to end.
		if err == nil || !strings.Contains(err.Error(), "not ready within 1m0s") || late < time.Minute || late > time.Minute+11*time.Second {
			t.Errorf("item 186: after %v Start returned %v", late, err)
		}
	})
}

// Hours pass between two results, with and without the CLI's own word that it
// works.
func TestWaitingForBackgroundWorkHasNoLimit(t *testing.T) {
	for name, work := range map[string]string{
		"item 221: the CLI tells its state": running,
		"item 221: it does not":             `{"type":"system","subtype":"task_started","task_id":"a","task_type":"local_agent"}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				early := false
				opts := remotely(func(stdin io.Reader, stdout io.Writer, _ <-chan struct{}) claude.Exit {
					lines := json.NewDecoder(stdin)
					var first struct {
						ID string `json:"request_id"`
					}
					lines.Decode(&first)
					fmt.Fprintf(stdout, `{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{"claude_code_version":%q}}}`+"\n", first.ID, claudetest.FakeVersion)
					lines.Decode(new(json.RawMessage)) // the prompt
					fmt.Fprintln(stdout, work)
					fmt.Fprintln(stdout, `{"type":"result","subtype":"success","result":"first"}`)
					ended := make(chan error, 1)
					go func() { ended <- lines.Decode(new(json.RawMessage)) }()
					select {
					case <-ended:
						early = true
						return claude.Exit{}
					case <-time.After(5 * time.Hour):
					}
					fmt.Fprintln(stdout, `{"type":"system","subtype":"task_notification","task_id":"a","status":"completed"}`)
					fmt.Fprintln(stdout, `{"type":"result","subtype":"success","result":"second","origin":{"kind":"task-notification"}}`)
					if work == running {
						fmt.Fprintln(stdout, idle)
					}
					<-ended
					return claude.Exit{}
				})
				messages, err := collect(t, claude.Query(t.Context(), "go", opts))
				if err != nil || early || fmt.Sprint(results(messages)) != "[first second]" {
					t.Errorf("the input was closed early: %v; %q, %v", early, results(messages), err)
				}
			})
		})
	}
}

func TestErrorsOfOtherProcesses(t *testing.T) {
	lost := errors.New("the container is lost")
	synctest.Test(t, func(t *testing.T) {
		opts := remotely(func(io.Reader, io.Writer, <-chan struct{}) claude.Exit { return claude.Exit{Code: -1, Err: lost} })
		_, err := claude.Start(t.Context(), opts)
		if _, ok := errors.AsType[*claude.ConnectionError](err); !ok || !errors.Is(err, lost) {
			t.Errorf("item 240: a process that cannot be waited for: %v", err)
		}
		opts.Spawn = func(context.Context, claude.Command) (claude.Process, error) { return nil, lost }
		if _, err := claude.Start(t.Context(), opts); !errors.Is(err, lost) {
			t.Errorf("item 240: a process that cannot be started: %v", err)
		}
	})
}
