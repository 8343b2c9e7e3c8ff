package claude

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

const (
	frameBuffer = 64 << 10 // first size of a frameReader's buffer
	keepBuffer  = 1 << 20  // a larger one is given back when it is empty
)

// frameReader cuts the CLI's output into lines that hold one JSON object
// each. A line ends at the byte '\n' and nowhere else.
type frameReader struct {
	r       io.Reader
	limit   int               // longest line in bytes; zero means any length
	skipped func(line []byte) // gets lines that hold no object; nil discards them

	buf        []byte
	start, end int   // of what is read and not yet returned
	searched   int   // bytes after start that hold no newline
	lost       int   // bytes dropped of a line over the limit
	err        error // of r; ends the stream when the buffer is used up
	reserve    reserve
}

// next returns the next object, without white space around it. The slice is
// valid until the following call. A line over the limit is a
// *LineTooLongError, after which next goes on with the line that follows. Any
// other error is the reader's, io.EOF if all went well, and ends the stream: a
// last line without newline is returned before it if it is complete and
// dropped if it is not.
func (f *frameReader) next() ([]byte, error) { return f.object(true) }

// errNotRead is returned by buffered when there is no whole line.
var errNotRead = errors.New("no whole line was read")

// buffered is next for an object that was read already; if there is none it
// returns errNotRead. The slices that were returned before stay valid.
func (f *frameReader) buffered() ([]byte, error) { return f.object(false) }

func (f *frameReader) object(read bool) ([]byte, error) {
	for {
		line, whole := f.line()
		if !whole && !read {
			return nil, errNotRead
		}
		size := len(line) + f.lost
		tooLong := f.limit > 0 && size > f.limit
		if !whole && f.err == nil {
			if tooLong {
				f.drop()
			}
			f.fill()
			continue
		}
		if !whole && size == 0 {
			return nil, f.err
		}
		f.advance(len(line), whole)
		trimmed := bytes.Trim(line, " \t\r")
		switch {
		case tooLong:
			return nil, &LineTooLongError{Size: size, Limit: f.limit}
		case len(trimmed) == 0:
		case trimmed[0] != '{':
			if f.skipped != nil {
				f.skipped(trimmed)
			}
		case whole || json.Valid(trimmed):
			return trimmed, nil
		}
	}
}

// line returns what is read of the current line and whether it is all of it.
func (f *frameReader) line() (line []byte, whole bool) {
	rest := f.buf[f.start:f.end]
	if i := bytes.IndexByte(rest[f.searched:], '\n'); i >= 0 {
		return rest[:f.searched+i], true
	}
	f.searched = len(rest)
	return rest, false
}

// advance moves behind a line of n bytes and its newline, if it has one.
func (f *frameReader) advance(n int, newline bool) {
	f.start += n
	if newline {
		f.start++
	}
	f.searched, f.lost = 0, 0
}

// drop forgets what is read of the current line but for its length.
func (f *frameReader) drop() {
	f.lost += f.end - f.start
	f.start, f.end, f.searched = 0, 0, 0
}

// fill reads more, and makes room for it if there is none.
func (f *frameReader) fill() {
	if f.start == f.end {
		f.start, f.end = 0, 0
		if len(f.buf) > keepBuffer {
			f.buf = nil
		}
	}
	if f.end == len(f.buf) {
		f.grow()
	}
	for range 100 {
		n, err := f.r.Read(f.buf[f.end:])
		f.end += n
		f.err = err
		f.reserve.read(n)
		if n > 0 || err != nil {
			return
		}
	}
	f.err = io.ErrNoProgress
}

// grow makes room at the end of the buffer: it moves the current line to the
// front, into a larger buffer if it fills more than half of this one.
func (f *frameReader) grow() {
	buf := f.buf
	if size := f.end - f.start; size >= len(buf)/2 {
		buf = make([]byte, max(frameBuffer, 2*len(buf)))
	}
	f.end = copy(buf, f.buf[f.start:f.end])
	f.start = 0
	f.buf = buf
}

// reserve is memory that nobody touches, held while the CLI says much at once. A program
// that holds next to nothing would have its garbage collected every 3 MB otherwise,
// which is hundreds of times a second.
type reserve struct {
	room []byte // nil while the CLI says little
	much int    // bytes that were read much at once
	few  int    // reads in a row since then that brought little
}

const (
	reserveSize  = 6 << 20
	reserveAfter = 1 << 20  // bytes that came much at once
	reserveUntil = 100      // reads in a row that bring little
	muchAtOnce   = 16 << 10 // bytes of a read
)

// read takes note of a read of n bytes.
func (r *reserve) read(n int) {
	switch {
	case n >= muchAtOnce:
		r.few = 0
		if r.much += n; r.much >= reserveAfter && r.room == nil {
			r.room = make([]byte, reserveSize)
		}
	case r.much > 0:
		if r.few++; r.few == reserveUntil {
			*r = reserve{}
		}
	}
}
