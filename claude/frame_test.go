package claude

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// frames reads all of r and returns its frames, with an error as its text.
func frames(t *testing.T, f *frameReader) (list []string) {
	t.Helper()
	for {
		line, err := f.next()
		if long, ok := errors.AsType[*LineTooLongError](err); ok {
			list = append(list, fmt.Sprintf("too long: %d", long.Size))
			continue
		}
		if err != nil {
			if err != io.EOF {
				list = append(list, err.Error())
			}
			return list
		}
		list = append(list, string(line))
	}
}

// chunks gives out its parts one read at a time, then err.
type chunks struct {
	parts []string
	err   error
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.parts) == 0 {
		return 0, c.err
	}
	n := copy(p, c.parts[0])
	if c.parts[0] = c.parts[0][n:]; c.parts[0] == "" {
		c.parts = c.parts[1:]
	}
	return n, nil
}

func TestFrames(t *testing.T) {
	large := `{"a":"` + strings.Repeat("x", 300<<10) + `"}`
	white := `{"a":"` + strings.Repeat(" ", 200<<10) + `"}`
	for _, test := range []struct {
		name  string
		parts []string
		limit int
		err   error
		want  []string
	}{
		{name: "item 104: two in one read", parts: []string{"{\"a\":1}\n{\"b\":2}\n"}, want: []string{`{"a":1}`, `{"b":2}`}},
		{name: "item 105: escaped newlines", parts: []string{`{"a":"x\ny"}` + "\n"}, want: []string{`{"a":"x\ny"}`}},
		{name: "item 106: blank lines and CRLF", parts: []string{"\n\r\n{\"a\":1}\r\n\n \n\t{\"b\":2} \r\n"}, want: []string{`{"a":1}`, `{"b":2}`}},
		{name: "item 107: one in several reads", parts: []string{`{"a"`, `:`, "1}", "\n"}, want: []string{`{"a":1}`}},
		{name: "items 108, 420: large", parts: []string{large + "\n" + large + "\n{}\n"}, want: []string{large, large, `{}`}},
		{name: "item 109: over the limit", parts: []string{`{"a":"` + strings.Repeat("x", 40), strings.Repeat("x", 40), "\"}\n{\"b\":2}\n"}, limit: 50, want: []string{"too long: 88", `{"b":2}`}},
		{name: "item 110: at the limit", parts: []string{"{\"a\":1}\n{\"ab\":1}\n"}, limit: 7, want: []string{`{"a":1}`, "too long: 8"}},
		{name: "item 116: whole line over the limit", parts: []string{`{"a":"0123456789"}` + "\n{}\n"}, limit: 10, want: []string{"too long: 18", `{}`}},
		{name: "over the limit without end", parts: []string{`{"a":"0123456789`}, limit: 10, want: []string{"too long: 16"}},
		{name: "item 111: whole and split keep their order", parts: []string{"{\"a\":1}\n{\"b\"", ":2}\n{\"c\":3}\n{", "}\n"}, want: []string{`{"a":1}`, `{"b":2}`, `{"c":3}`, `{}`}},
		{name: "items 112, 113: noise", parts: []string{"[SandboxDebug] x {\n{\"a\":1}\nwarning: y\n{\"b\":2}\nbye"}, want: []string{`{"a":1}`, `{"b":2}`}},
		{name: "item 114: white space at a border", parts: []string{`{"a":"x `, ` y`, "\u00a0\u2009", "\u3000z\u2028", "\"}\n"}, want: []string{"{\"a\":\"x  y\u00a0\u2009\u3000z\u2028\"}"}},
		{name: "item 114: a letter in two reads", parts: []string{"{\"a\":\"\xc3", "\xa9\"}\n"}, want: []string{`{"a":"é"}`}},
		{name: "item 115: much white space", parts: []string{white[:70<<10], white[70<<10:], "\n"}, want: []string{white}},
		{name: "item 117: broken line is passed on", parts: []string{"{broken\n{}\n"}, want: []string{`{broken`, `{}`}},
		{name: "item 118: last line without newline", parts: []string{"{}\n{\"a\":1}"}, want: []string{`{}`, `{"a":1}`}},
		{name: "item 118: when the stream is closed", parts: []string{`{"a":1}`}, err: io.ErrClosedPipe, want: []string{`{"a":1}`, io.ErrClosedPipe.Error()}},
		{name: "item 119: truncated last line", parts: []string{"{}\n{\"a\":"}, want: []string{`{}`}},
		{name: "empty", want: nil},
		{name: "reader without progress", parts: []string{"{}\n"}, err: errNothing, want: []string{`{}`, io.ErrNoProgress.Error()}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.err == nil {
				test.err = io.EOF
			}
			r := io.Reader(&chunks{test.parts, test.err})
			if test.err == errNothing {
				r = &lazy{r}
			}
			got := frames(t, &frameReader{r: r, limit: test.limit})
			if !slices.Equal(got, test.want) {
				t.Errorf("frames are %.200q, want %.200q", got, test.want)
			}
		})
	}
}

// lazy turns errNothing into reads of nothing.
type lazy struct{ r io.Reader }

var errNothing = errors.New("nothing")

func (l *lazy) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if err == errNothing {
		err = nil
	}
	return n, err
}

func TestFramesHandNoiseToTheHook(t *testing.T) {
	var noise []string
	f := &frameReader{
		r:       strings.NewReader("[SandboxDebug] x\r\n\n{}\n\"text\"\nlast"),
		skipped: func(line []byte) { noise = append(noise, string(line)) },
	}
	frames(t, f)
	if want := []string{"[SandboxDebug] x", `"text"`, "last"}; !slices.Equal(noise, want) {
		t.Errorf("hook got %q, want %q", noise, want)
	}
}

func TestLineTooLongErrorNamesTheLimit(t *testing.T) {
	err := &LineTooLongError{Size: 2000, Limit: 1000}
	equal(t, "text", err.Error(), "reading message: line of 2000 bytes is over the limit of 1000")
}

// A line over the limit must not be kept in memory.
func TestFramesBoundMemory(t *testing.T) {
	endless := io.LimitReader(iotest.OneByteReader(zeros{}), 1<<20)
	f := &frameReader{r: endless, limit: 100}
	if got := frames(t, f); !slices.Equal(got, []string{"too long: 1048576"}) {
		t.Errorf("frames are %q", got)
	}
	if len(f.buf) > frameBuffer {
		t.Errorf("buffer grew to %d", len(f.buf))
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// A huge line must not hold its memory for the life of the session.
func TestFramesGiveBackMemory(t *testing.T) {
	huge := `{"a":"` + strings.Repeat("x", 4<<20) + `"}`
	f := &frameReader{r: &chunks{[]string{huge + "\n", "{}\n", "{}\n"}, io.EOF}}
	equal(t, "frames", len(frames(t, f)), 3)
	if len(f.buf) > keepBuffer {
		t.Errorf("buffer still has %d bytes", len(f.buf))
	}
}

// FuzzFrames: however the bytes are cut into reads, the frames are those of
// the plain definition.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("{\"a\":1}\r\n\n[noise]\n{\"b\":\"\xc3\xa9\"}\n{broken\n{\"c\":3}"), uint8(3), uint8(0))
	f.Add([]byte("{\"abc\":1}\n{}\n{\"long\":12345}"), uint8(1), uint8(5))
	for i, line := range recordedLines(f) { // cut in many ways, with and without a limit
		f.Add([]byte(line+"\n"), uint8(i), uint8(i%2*200))
	}
	f.Fuzz(func(t *testing.T, data []byte, chunk, limit uint8) {
		var parts []string
		for part := range slices.Chunk(data, int(chunk)+1) {
			parts = append(parts, string(part))
		}
		got := frames(t, &frameReader{r: &chunks{parts, io.EOF}, limit: int(limit)})
		var want []string
		lines := bytes.Split(data, []byte{'\n'})
		for i, line := range lines {
			trimmed := bytes.Trim(line, " \t\r")
			switch {
			case limit > 0 && len(line) > int(limit):
				want = append(want, fmt.Sprintf("too long: %d", len(line)))
			case len(trimmed) == 0 || trimmed[0] != '{':
			case i < len(lines)-1 || json.Valid(trimmed):
				want = append(want, string(trimmed))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("frames are %q, want %q", got, want)
		}
	})
}

// Room is held in reserve while the CLI says much, not for a large answer or two, and
// given back when it says little again.
func TestReserveIsHeldWhileMuchIsSaid(t *testing.T) {
	var r reserve
	for n := range 10_000 {
		if r.read(1000); r.room != nil {
			t.Fatalf("it is held after %d small reads", n+1)
		}
	}
	for range 10 {
		if r.read(64 << 10); r.room != nil {
			t.Fatal("it is held after 640 KB")
		}
	}
	for range reserveAfter / (64 << 10) {
		r.read(64 << 10)
	}
	if r.room == nil {
		t.Fatal("it is not held in a flood")
	}
	for range 5 { // a flood has its gaps
		for range reserveUntil - 1 {
			r.read(1000)
		}
		r.read(64 << 10)
	}
	if r.room == nil {
		t.Error("it is not held through a flood")
	}
	for range reserveUntil {
		r.read(1000)
	}
	if r.room != nil || r.much != 0 {
		t.Error("it is held though little is said")
	}
}
