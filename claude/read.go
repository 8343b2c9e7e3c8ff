package claude

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// While the CLI says much at once, one goroutine reads a batch of lines while
// another acts on those before it.
const (
	batches    = 3    // one being read, one waiting, one being acted on
	batchLines = 1024 // at most in a batch
	fewLines   = 16   // not worth another goroutine
)

// frame is one line of the CLI.
type frame struct {
	text string
	kind string  // its type
	msg  Message // what it says; nil until it is decoded, and for a frame of the protocol itself
}

// read takes in all that the CLI prints. ctx is that of callbacks.
func (s *Session) read(ctx context.Context) {
	lines := &frameReader{r: s.proc.Stdout(), limit: s.opts.MaxLine, skipped: s.opts.OnDebugLine}
	waiting := make(chan []frame, batches) // from this goroutine to the other
	free := make(chan []frame, batches)    // acted on, to be used again
	for range batches {
		free <- nil
	}
	var acting sync.WaitGroup
	acting.Go(func() {
		for frames := range waiting {
			s.act(ctx, frames)
			free <- frames
		}
	})
	defer acting.Wait()
	defer close(waiting)
	for {
		frames, ok := batch(lines, <-free)
		if !ok {
			return
		}
		if s.opts.OnFrame != nil {
			s.opts.OnFrame()
		}
		if len(frames) <= fewLines && len(free) == batches-1 { // all before them are acted on
			s.act(ctx, frames)
			free <- frames
			continue
		}
		if len(waiting) > 0 { // the other one falls behind
			decode(frames)
		}
		waiting <- frames
	}
}

// batch waits for a line and returns it with those that were read with it, in
// the memory of frames.
func batch(lines *frameReader, frames []frame) (_ []frame, ok bool) {
	f, ok := newFrame(lines.next())
	if !ok {
		return nil, false
	}
	frames = append(frames[:0], f)
	for len(frames) < batchLines {
		if f, ok = newFrame(lines.buffered()); !ok {
			break
		}
		frames = append(frames, f)
	}
	return frames, true
}

// newFrame makes a frame of a line, or of one that was too long.
func newFrame(line []byte, err error) (f frame, ok bool) {
	if _, long := errors.AsType[*LineTooLongError](err); long {
		return frame{msg: &Unknown{Header: Header{Mismatch: err.Error()}, Err: err}}, true
	}
	return frame{text: string(line), kind: peek(line)}, err == nil
}

// act decodes frames and acts on them.
func (s *Session) act(ctx context.Context, frames []frame) {
	decode(frames)
	s.frames(ctx, frames)
	clear(frames) // who reads the messages owns them
}

// decode decodes the messages among frames that are not decoded yet.
func decode(frames []frame) {
	s := new(scanner)
	for i := range frames {
		f := &frames[i]
		if f.msg != nil {
			continue
		}
		switch f.kind {
		case "keep_alive", "control_request", "control_response", "control_cancel_request", "transcript_mirror":
			continue
		}
		m, err := s.message(f.text, f.kind)
		if err != nil {
			m = &Unknown{Header: Header{Mismatch: err.Error(), raw: f.text}, Err: err}
		}
		f.msg = m
	}
}

// frames acts on frames in their order.
func (s *Session) frames(ctx context.Context, frames []frame) {
	s.delivering.Store(true)
	defer runtime.Gosched() // who reads goes first, or unread messages pile up
	defer s.settle()
	defer s.queue.notice(nil) // who waits for the end looks again
	defer s.delivering.Store(false)
	var run []Message // to be passed on together
	size := 0
	pass := func() {
		if len(run) > 0 {
			s.queue.put(run, size)
			run, size = nil, 0
		}
	}
	for i := range frames {
		f := &frames[i]
		if f.msg != nil {
			if s.observe(f.msg) {
				if run == nil {
					run = make([]Message, 0, len(frames))
				}
				run = append(run, f.msg)
				size += len(f.text)
			}
			continue
		}
		pass()
		switch f.kind {
		case "control_request":
			s.asked(ctx, []byte(f.text))
		case "control_response":
			s.answered(ctx, []byte(f.text))
		case "control_cancel_request":
			s.withdrawn([]byte(f.text))
		case "transcript_mirror":
			s.mirrored([]byte(f.text))
		}
	}
	pass()
}

// observe takes note of m and tells whether it is for whoever reads messages.
func (s *Session) observe(m Message) bool {
	s.ledger.observe(m)
	switch m := m.(type) {
	case *SessionState:
		return !m.HostOnly
	case *CommandsChanged:
		s.mu.Lock()
		s.commands = m.Commands
		s.mu.Unlock()
	case *HookStarted:
		s.note("hook " + m.HookName + " was started")
	}
	return true
}
