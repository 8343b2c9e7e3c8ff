package claude

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// drainWait is how long the CLI's output may take to end after the CLI has:
// something that it started may still hold it.
const drainWait = 2 * time.Second

// supervise owns the process and every goroutine of the session but the
// callbacks. It returns when all have ended.
func (s *Session) supervise(ctx context.Context, cleanup func()) {
	defer close(s.done)
	work, stop := context.WithCancelCause(ctx) // of callbacks
	exited := make(chan Exit, 1)               // how the process ended
	read := make(chan struct{})                // closed when its output has ended
	heard := make(chan struct{})               // closed when its stderr has
	var all sync.WaitGroup
	all.Go(func() { exited <- s.proc.Wait() })
	all.Go(s.write)
	all.Go(func() { defer close(heard); s.readStderr() })
	all.Go(func() { defer close(read); s.read(work) })

	var exit Exit
	ended := false
	select {
	case <-s.closing:
		stop(s.closeErr)
		s.queue.abandon()
		s.interruptSoon()
	case <-ctx.Done():
		s.queue.abandon()
		s.interruptSoon()
	case <-read:
	case exit = <-exited:
		ended = true
	}
	if !ended {
		exit = s.end(exited)
	}
	stop(ErrClosed)
	s.queue.hurry()          // what is left is little, whoever reads it
	within(drainWait, read)  // what the CLI printed last
	s.proc.Kill()            // what it left behind
	within(drainWait, heard) // and complained of: nobody holds it any more
	for _, pipe := range []io.Closer{s.proc.Stdin(), s.proc.Stdout(), s.proc.Stderr()} {
		pipe.Close()
	}
	<-read
	s.fail(ctx, exit)
	all.Wait()
	s.endCallbacks()
	s.queue.end(s.err)
	cleanup()
}

// end closes the input of the process and waits for it to end, with more and
// more insistence.
func (s *Session) end(exited <-chan Exit) Exit {
	s.spawn(func() { s.send(context.Background(), outgoing{last: errEnding}) })
	for _, insist := range []func() error{s.proc.Terminate, s.proc.Kill} {
		select {
		case exit := <-exited:
			return exit
		case <-time.After(s.opts.grace()):
			s.proc.Stdin().Close() // a writer that is stuck lets go
			insist()
		}
	}
	select {
	case exit := <-exited:
		return exit
	case <-time.After(killWait):
		return Exit{Code: -1, Err: errors.New("the process did not end when it was killed")}
	}
}

// within waits for done, at most for d, and tells whether it came.
func within(d time.Duration, done <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// interruptSoon asks a CLI that is at work to stop, without waiting for it.
func (s *Session) interruptSoon() {
	if !s.ledger.busy() {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), s.opts.grace())
	defer stop()
	s.post(ctx, json.RawMessage(`{"type":"control_request","request_id":"close","request":{"subtype":"interrupt"}}`))
}

// fail notes what the session ended with and fails whoever waits for it.
func (s *Session) fail(ctx context.Context, exit Exit) {
	select {
	case <-s.closing:
		s.err = s.closeErr
	default:
		s.err = s.exitError(exit)
		if cause := context.Cause(ctx); cause != nil {
			s.err = cause
		}
	}
	close(s.gone)
}

// exitError is what the end of the process means: nothing if it ended well.
func (s *Session) exitError(exit Exit) error {
	if exit.Err != nil {
		return &ConnectionError{Op: "waiting for claude code", Stderr: s.stderrText(), Err: exit.Err}
	}
	if exit.Code == 0 {
		return nil
	}
	e := &ProcessError{ExitCode: exit.Code, Signal: exit.Signal, Stderr: s.stderrText()}
	if r := s.ledger.lastFailure(); r != nil {
		e.Result, _ = errors.AsType[*ResultError](r.Err())
	}
	return e
}

// endCallbacks gives callbacks, whose contexts have ended, time to return. One
// that ignores its context is left behind.
func (s *Session) endCallbacks() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	returned := make(chan struct{})
	go func() { defer close(returned); s.serving.Wait() }()
	within(s.opts.grace(), returned)
	ctx, stop := context.WithTimeout(context.Background(), s.opts.grace())
	defer stop()
	if err := s.bridge.close(ctx); err != nil {
		s.opts.warn(err.Error())
	}
	if s.mirror != nil {
		if err := s.mirror.close(ctx); err != nil {
			s.opts.warn("saving the session: " + err.Error())
		}
	}
}

// note remembers what the CLI was seen doing, for errors.
func (s *Session) note(seen string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = seen
}

// busy tells whether anything is still to be done or read.
func (s *Session) busy() bool {
	return s.ledger.busy() || s.delivering.Load() || !s.queue.empty()
}

// settle closes the input when all is done and no more will be said.
func (s *Session) settle() {
	s.mu.Lock()
	finish := s.finishing && !s.ledger.busy()
	if finish {
		s.finishing = false
	}
	s.mu.Unlock()
	if finish {
		s.spawn(func() { s.send(context.Background(), outgoing{last: ErrInputClosed}) })
	}
}

// mirrored hands entries of the session's file to the store.
func (s *Session) mirrored(line []byte) {
	var frame struct {
		Path    string            `json:"filePath"`
		Entries []json.RawMessage `json:"entries"`
	}
	if s.mirror != nil && json.Unmarshal(line, &frame) == nil {
		s.mirror.add(frame.Path, frame.Entries)
	}
}

// mirrorFailed tells whoever reads messages that the store has a gap.
func (s *Session) mirrorFailed(key SessionKey, err error) {
	s.queue.notice(&MirrorError{
		Header: Header{Type: "system", Subtype: "mirror_error", SessionID: key.Session},
		Error:  err.Error(), ProjectKey: key.Project, StoreSessionID: key.Session, Subpath: key.Subpath,
	})
}

// readStderr keeps the end of what the CLI prints there, and passes it on.
func (s *Session) readStderr() {
	r := bufio.NewReaderSize(s.proc.Stderr(), 64<<10)
	for {
		line, err := r.ReadSlice('\n') // a longer one is cut
		if text := strings.TrimRight(string(line), " \t\r\n"); text != "" {
			s.mu.Lock()
			s.stderr.add(text)
			s.mu.Unlock()
			s.guard(func() {
				if s.opts.Stderr != nil {
					s.opts.Stderr(text)
				}
			})
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// guard keeps a panic of a callback from ending the program.
func (s *Session) guard(call func()) {
	defer func() {
		if p := recover(); p != nil {
			s.opts.warn(fmt.Sprintf("a callback panicked: %v", p))
		}
	}()
	call()
}
