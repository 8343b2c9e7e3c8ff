package claude

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
)

// When the CLI says much at once, lines are decoded in parallel: as many as one
// read brought, each decoder given enough to be worth it.
const (
	batchLines  = 1024
	workerLines = 32
)

// frame is one line of the CLI, which is only valid until the next read.
type frame struct {
	line []byte
	kind string  // its type
	msg  Message // what it says; nil for a frame of the protocol itself
}

// read takes in all that the CLI prints. ctx is that of callbacks.
func (s *Session) read(ctx context.Context) {
	lines := &frameReader{r: s.proc.Stdout(), limit: s.opts.MaxLine, skipped: s.opts.OnDebugLine}
	var frames []frame
	for {
		f, ok := newFrame(lines.next())
		if !ok {
			return
		}
		frames = append(frames[:0], f)
		for len(frames) < batchLines {
			if f, ok = newFrame(lines.buffered()); !ok {
				break
			}
			frames = append(frames, f)
		}
		if s.opts.OnFrame != nil {
			s.opts.OnFrame()
		}
		decodeFrames(frames)
		s.frames(ctx, frames)
	}
}

// newFrame makes a frame of a line, or of one that was too long.
func newFrame(line []byte, err error) (f frame, ok bool) {
	if _, long := errors.AsType[*LineTooLongError](err); long {
		return frame{msg: &Unknown{Header: Header{Mismatch: err.Error()}, Err: err}}, true
	}
	return frame{line: line, kind: peek(line)}, err == nil
}

// decodeFrames decodes the messages among the frames.
func decodeFrames(frames []frame) {
	workers := min(runtime.GOMAXPROCS(0), max(1, len(frames)/workerLines))
	share := (len(frames) + workers - 1) / workers
	var all sync.WaitGroup
	for len(frames) > share {
		part := frames[:share]
		frames = frames[share:]
		all.Go(func() { decodeEach(part) })
	}
	decodeEach(frames)
	all.Wait()
}

func decodeEach(frames []frame) {
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
		m, err := s.message(f.line, f.kind)
		if err != nil {
			m = &Unknown{Header: Header{Mismatch: err.Error(), raw: string(f.line)}, Err: err}
		}
		f.msg = m
	}
}

// frames acts on frames in their order.
func (s *Session) frames(ctx context.Context, frames []frame) {
	s.delivering.Store(true)
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
	for _, f := range frames {
		if f.msg != nil {
			if s.observe(f.msg) {
				if run == nil {
					run = make([]Message, 0, len(frames))
				}
				run = append(run, f.msg)
				size += len(f.line)
			}
			continue
		}
		pass()
		switch f.kind {
		case "control_request":
			s.asked(ctx, bytes.Clone(f.line))
		case "control_response":
			s.answered(ctx, f.line)
		case "control_cancel_request":
			s.withdrawn(f.line)
		case "transcript_mirror":
			s.mirrored(f.line)
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
