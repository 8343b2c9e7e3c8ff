package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
	"github.com/dfaf701a/nestor/internal/daemon"
)

// following is a run that this command submits and follows to its end. If the
// daemon that has it goes away, this process takes its place.
type following struct {
	opts           runOptions
	daemon         daemon.Options
	task           nestor.Task
	prompt         string
	stdout, stderr io.Writer
	lines          *bufio.Writer // events for stdout, until no more come at once
	stdin          io.Reader     // a terminal where somebody can answer; nil if there is none

	key  string    // of the submission, so that it can be made again if a daemon goes away; empty if this command is the only one there was
	id   nestor.ID // empty until it is submitted
	seen uint64    // the position of the last event
	view view
	hits int // how often Ctrl-C was pressed

	unread bool // nobody reads the events that are to be printed
	asks   asking
}

// newFollowing returns the following of a task for a command.
func newFollowing(cmd *cobra.Command, opts runOptions, d daemon.Options, task nestor.Task) *following {
	f := &following{opts: opts, daemon: d, task: task, prompt: task.Input, stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr()}
	f.lines = bufio.NewWriter(f.stdout)
	if terminalOf(cmd.InOrStdin()) != nil {
		f.stdin = cmd.InOrStdin()
	}
	return f
}

// command is run, and its error is the command's.
func (f *following) command(cmd *cobra.Command, name string) error {
	err := f.run(cmd.Context())
	if _, coded := errors.AsType[*codedError](err); coded || err == nil {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// run follows the run, and prints its result.
func (f *following) run(parent context.Context) error {
	ctx := context.WithoutCancel(parent) // Ctrl-C ends the run first, and only then the command
	interrupts := make(chan os.Signal, 4)
	signal.Notify(interrupts, endings()...)
	defer signal.Stop(interrupts)
	unread := make(chan os.Signal, 1) // nobody asks: what is written then fails, and does not end the process
	signal.Notify(unread, syscall.SIGPIPE)
	defer signal.Stop(unread)
	f.view = f.newView()
	for {
		l, err := dial(ctx, f.daemon)
		if err != nil {
			f.view.close(nil)
			return err
		}
		if !l.own && f.key == "" {
			f.key = rand.Text()
		}
		end, err := f.follow(ctx, l, interrupts)
		if err == nil {
			f.view.close(end.Result)
			printed := f.print(end)
			f.linger(ctx, l, end.Root, interrupts)
			return errors.Join(printed, f.leave(l))
		}
		closed := f.leave(l)
		if l.own || !gone(err) {
			f.view.close(nil)
			return errors.Join(err, closed)
		}
		f.view.note("the daemon went away; taking its place")
	}
}

// leaveFor is how long the daemon in this process may take to end when Ctrl-C was
// pressed twice.
const leaveFor = time.Second

// leave closes the link. Who pressed Ctrl-C twice does not wait for an agent that
// does not settle: it ends with this process.
func (f *following) leave(l *link) error {
	if f.hits < 2 {
		return l.close()
	}
	done := make(chan error, 1)
	go func() { done <- l.close() }()
	select {
	case err := <-done:
		return err
	case <-time.After(leaveFor):
		return nil
	}
}

// gone tells whether err means that there is no daemon any more.
func gone(err error) bool {
	return errors.Is(err, api.ErrDisconnected) || errors.Is(err, api.ErrNoDaemon)
}

func (f *following) newView() view {
	if f.opts.quiet || f.opts.stream {
		return newView(io.Discard, viewOptions{})
	}
	size := terminalOf(f.stderr)
	terminal := size != nil && os.Getenv("TERM") != "dumb"
	return newView(f.stderr, viewOptions{
		Terminal: terminal, Size: size, Color: colorWanted(terminal, os.Getenv), Verbose: f.opts.verbose,
	})
}

// follow submits the run, unless that was done, and shows it until it has ended.
func (f *following) follow(ctx context.Context, l *link, interrupts <-chan os.Signal) (api.Run, error) {
	if f.id == "" {
		if err := f.submit(ctx, l.client); err != nil {
			return api.Run{}, err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer f.lines.Flush() // what goes wrong is told before
	type heard struct {
		event nestor.Event
		err   error
	}
	events := make(chan heard, atOnce) // sent and closed by the goroutine, which ends with ctx
	go func() {
		defer close(events)
		for e, err := range l.client.Events(ctx, f.id, api.EventsQuery{After: f.seen, Tree: true, Follow: true, Deltas: true}) {
			select {
			case events <- heard{e, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case sig := <-interrupts:
			if err := f.interrupt(ctx, l.client, sig); err != nil {
				return api.Run{}, err
			}
		case h, more := <-events:
			switch {
			case !more:
				return f.ended(ctx, l.client)
			case h.err != nil:
				return api.Run{}, h.err
			}
			err := f.show(h.event, len(events) > 0)
			if errors.Is(err, syscall.EPIPE) {
				f.unread = true
				err = f.interrupt(ctx, l.client, syscall.SIGPIPE)
			}
			if err != nil {
				return api.Run{}, err
			}
			f.asked(h.event)
		case line := <-f.asks.lines:
			f.reply(ctx, l.client, line)
		}
	}
}

// atOnce is how many events may have come that are not shown yet. Most come several at
// once: who reads them here, and who reads what is printed, is woken once for all.
const atOnce = 64

// asked takes note of what agents ask, so that it can be answered here.
func (f *following) asked(e nestor.Event) {
	switch e := e.(type) {
	case *nestor.Ask:
		f.asks.open = append(f.asks.open, api.OpenAsk{
			ID: e.AskID, Run: e.Run, Path: e.PathFromRoot, Tool: e.Tool, Question: e.Question, Options: e.Options, Default: e.Default, Until: e.Until,
		})
		if f.stdin == nil || f.opts.quiet || f.opts.stream {
			return
		}
		how := "answer it here"
		switch {
		case e.Tool != "":
			how = "answer it here: allow or deny"
		case len(e.Options) > 0:
			how = "answer it here: " + strings.Join(e.Options, ", ")
		}
		f.view.note(how + " (asked by " + pathOf(f.asks.open[len(f.asks.open)-1]) + ")")
		if f.asks.lines == nil {
			f.asks.lines = make(chan string)
			go readLines(f.stdin, f.asks.lines) // until the process ends: nothing else ends a read from a terminal
		}
	case *nestor.Answer:
		f.asks.drop(e.AskID)
	}
}

// readLines sends lines, for as long as there are some.
func readLines(r io.Reader, lines chan<- string) {
	for s := bufio.NewScanner(r); s.Scan(); {
		lines <- s.Text()
	}
}

// reply answers the oldest question with what somebody typed.
func (f *following) reply(ctx context.Context, client *api.Client, line string) {
	ask, err := f.asks.take()
	if err == nil {
		err = answerAsk(ctx, client, io.Discard, ask, strings.TrimSpace(line), "once")
	}
	if err != nil {
		f.view.note(err.Error())
	}
}

// submit submits the run, or finds the one that is to be followed.
func (f *following) submit(ctx context.Context, client *api.Client) error {
	if f.opts.resume != "" {
		id, err := resolveRun(ctx, client, f.opts.resume)
		if err != nil {
			return err
		}
		if f.prompt == "" {
			f.id = id
			return nil
		}
		if err := resumeFrom(ctx, client, &f.task, id); err != nil {
			return err
		}
	}
	run, err := client.Submit(ctx, api.Submission{Task: f.task, Key: f.key})
	f.id = run.ID
	return err
}

// show shows an event. If there are more already, it may be written with them.
func (f *following) show(e nestor.Event, more bool) error {
	if seq := e.Head().Seq; seq > 0 {
		f.seen = seq
	}
	f.view.event(e)
	if !f.opts.stream || f.unread {
		return nil
	}
	line, err := nestor.EncodeEvent(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if len(line) > f.lines.Available() { // others may write to the same file: no line is torn
		err = f.lines.Flush()
	}
	if err == nil {
		_, err = f.lines.Write(line)
	}
	if err == nil && !more {
		err = f.lines.Flush()
	}
	return err
}

// interrupt has the run end: the first time it may settle, then it must not.
func (f *following) interrupt(ctx context.Context, client *api.Client, sig os.Signal) error {
	by := "Ctrl-C"
	switch sig {
	case syscall.SIGTERM:
		by = "SIGTERM"
	case syscall.SIGHUP:
		by = "SIGHUP"
	case syscall.SIGPIPE:
		by = "the end of who reads its events"
	}
	f.hits++
	switch f.hits {
	case 1:
		f.view.note("interrupting; Ctrl-C again ends it now")
	case 2:
		f.view.note("ending it now; Ctrl-C again leaves it")
	default:
		return &codedError{exitCancelled, errors.New("run: left before it had ended; 'nestor runs list' has it")}
	}
	err := client.Cancel(ctx, f.id, api.Cancellation{By: by, Now: f.hits > 1})
	if errors.Is(err, nestor.ErrEnded) {
		return nil
	}
	return err
}

// ended returns the run, which has ended or is about to.
func (f *following) ended(ctx context.Context, client *api.Client) (api.Run, error) {
	run, err := client.Wait(ctx, f.id)
	if err == nil && run.Result == nil {
		run.Result = &nestor.Result{Status: run.State, Error: run.Error}
	}
	return run, err
}

// lingerFor is how long a command that has seen the end of its run may take to ask
// what came of it.
const lingerFor = time.Second

// linger keeps the daemon in this process alive as long as other commands follow
// runs that it has, or it executes some that nobody follows: those that a crash has
// left, which a command that only passes by would begin and leave again.
func (f *following) linger(ctx context.Context, l *link, own nestor.ID, interrupts <-chan os.Signal) {
	if !l.own || f.hits > 0 {
		return
	}
	told, last := false, time.Now() // whether it was said, and when there was a reason last
	for {
		why, err := needed(ctx, l.client, own)
		if err != nil || why == "" && (!told || time.Since(last) > lingerFor) {
			return
		}
		if why != "" {
			last = time.Now()
			if !told && !f.opts.quiet {
				fmt.Fprintf(f.stderr, "nestor: done; staying while %s (Ctrl-C hands them over; 'nestor serve' would own the project instead)\n", why)
			}
			told = true
		}
		select {
		case <-interrupts:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// needed says what the daemon in this process is needed for besides a tree of its own;
// empty if for nothing.
func needed(ctx context.Context, client *api.Client, own nestor.ID) (why string, err error) {
	info, err := client.Info(ctx)
	switch {
	case err != nil:
		return "", err
	case info.Followers > 0:
		return "other commands follow runs in this process", nil
	case info.Busy == 0:
		return "", nil
	}
	i := slices.IndexFunc(info.Trees, func(root nestor.ID) bool { return root != own }) // whose slot may not be free yet
	if i < 0 {
		return "", nil
	}
	return fmt.Sprintf("what was left before goes on, such as run %s", info.Trees[i]), nil
}

// runResult is what --json prints.
type runResult struct {
	Run        nestor.ID       `json:"run"`
	Root       nestor.ID       `json:"root"`
	Parent     nestor.ID       `json:"parent"`
	Depth      int             `json:"depth"`
	Agent      string          `json:"agent"`
	Status     nestor.State    `json:"status"`
	Output     string          `json:"output"`
	Structured json.RawMessage `json:"structured_output"`
	Error      *nestor.Failure `json:"error"`
	CostUSD    float64         `json:"cost_usd"` // of it and all below
	Usage      nestor.Usage    `json:"usage"`
	Turns      int             `json:"num_turns"`
	DurationMS int64           `json:"duration_ms"`
	Session    string          `json:"session_id"`
	Trace      string          `json:"trace_id"`
	Truncated  bool            `json:"truncated"`
	File       string          `json:"result_file"`
	Metadata   map[string]any  `json:"metadata"`
}

// print prints the result, and returns what the exit code is made of.
func (f *following) print(run api.Run) error {
	r := run.Result
	text := r.Output
	if r.Structured != nil {
		text = string(r.Structured)
	}
	var written error // it is printed all the same
	if f.opts.output != "" {
		if err := writeOutput(f.opts.output, text); err != nil {
			written = fmt.Errorf("writing the result: %w", err)
		}
	}
	var err error
	switch {
	case f.opts.stream:
	case f.opts.json:
		err = printJSON(f.stdout, runResult{
			Run: run.ID, Root: run.Root, Parent: run.Parent, Depth: run.Depth, Agent: run.Agent, Status: run.State, Output: r.Output,
			Structured: r.Structured, Error: r.Error, CostUSD: run.CostUSD + run.BelowUSD, Usage: r.Usage, Turns: r.Turns,
			DurationMS: run.Ended.Sub(run.Started).Milliseconds(), Session: r.Session, Trace: run.Trace, Truncated: r.Truncated, File: r.File, Metadata: r.Metadata,
		})
	case text != "":
		if terminalOf(f.stdout) != nil {
			text = printable(text) // it may be anybody's
		}
		_, err = fmt.Fprintln(f.stdout, text)
	}
	if err = errors.Join(written, err); err != nil {
		return err
	}
	return outcomeOf(run)
}

// outcomeOf is the error that a run which is no success ends the command with.
func outcomeOf(run api.Run) error {
	why, code := string(run.State), exitError
	if e := run.Result.Error; e != nil {
		why = e.Error() + moreWith(e.Kind)
		if e.Kind == nestor.Refused {
			code = exitRefused
		}
	}
	switch run.State {
	case nestor.Success:
		return nil
	case nestor.Partial:
		return &codedError{exitPartial, fmt.Errorf("run %s is partial: %s", run.ID, why)}
	case nestor.Cancelled:
		return &codedError{exitCancelled, fmt.Errorf("run %s: %s", run.ID, why)}
	}
	return &codedError{code, fmt.Errorf("run %s ended with an error: %s", run.ID, why)}
}

// moreWith says which flag sets the limit that a failure of that kind tells of; nothing
// of another kind.
func moreWith(kind nestor.Kind) string {
	switch kind {
	case nestor.Turns:
		return "; more with --max-turns"
	case nestor.Budget:
		return "; more with --max-budget-usd"
	case nestor.Timeout:
		return "; more with --timeout"
	case nestor.Silence:
		return "; more with --silence"
	}
	return ""
}
