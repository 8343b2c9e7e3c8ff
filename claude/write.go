package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// outgoing is one line for the CLI, or the end of its input.
type outgoing struct {
	line []byte     // with its newline
	last error      // if not nil: close the input instead, and have what comes behind fail with it
	done chan error // gets the writer's result, once; buffered
}

// write is the one goroutine that writes to the CLI, so that lines stay whole
// whoever sends them. It ends when the CLI is gone.
func (s *Session) write() {
	stdin := s.proc.Stdin()
	var closed error
	for {
		select {
		case o := <-s.out:
			switch {
			case closed != nil && o.last != nil:
				o.done <- nil
			case closed != nil:
				o.done <- closed
			case o.last != nil:
				closed = o.last
				o.done <- stdin.Close()
			default:
				_, err := stdin.Write(o.line)
				o.done <- err
			}
		case <-s.gone:
			return
		}
	}
}

// send hands o to the writer and waits until it is written. If ctx ends first
// it may or may not be.
func (s *Session) send(ctx context.Context, o outgoing) error {
	o.done = make(chan error, 1)
	select {
	case s.out <- o:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.gone:
		return s.over()
	}
	select {
	case err := <-o.done:
		if err == nil || err == ErrInputClosed {
			return err
		}
		// The pipe is broken, or closed, because the CLI is ending: say why it is.
		if within(s.opts.grace(), s.gone) {
			return s.over()
		}
		return &ConnectionError{Op: "writing to claude code", Err: err}
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.gone:
		// It may have read the line, answered and left before the writer, whose pipe is
		// closed by now, can say that it is written.
		select {
		case err := <-o.done:
			if err == nil {
				return nil
			}
		case <-time.After(s.opts.grace()):
		}
		return s.over()
	}
}

// post sends v as one line.
func (s *Session) post(ctx context.Context, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	return s.send(ctx, outgoing{line: append(line, '\n')})
}

// errEnding is what lines fail with that come when the CLI is being ended, or has ended
// by itself; [Session.send] says why.
var errEnding = errors.New("claude code is ending")

// over is the error of what needs a CLI that is gone.
func (s *Session) over() error {
	if s.err != nil {
		return s.err
	}
	return ErrClosed
}
