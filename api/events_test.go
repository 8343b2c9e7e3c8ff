package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const someEvent = `{"type":"chat_start","seq":99,"time":"2026-01-02T03:04:05Z","run":"r","root":"r","depth":0,"message":"hello"}`

// readStream returns the positions of the events in text, and what came
// behind them.
func readStream(r io.Reader) (seqs []uint64, err error) {
	s := newStream(r)
	for {
		e, err := s.next()
		if err != nil {
			return seqs, err
		}
		seqs = append(seqs, e.Head().Seq)
	}
}

func TestStreamReadsWhatServersSend(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		seqs []uint64
		err  string
	}{
		"the position is that of the id": {"id: 7\ndata: " + someEvent + "\n\nevent: end\ndata: {}\n\n", []uint64{7}, "EOF"},
		"what is live only has none":     {"data: " + someEvent + "\n\nevent: end\n\n", []uint64{0}, "EOF"},
		"CRLF, comments, no spaces":      {":\r\n\r\n:hm\r\nid:7\r\ndata:" + someEvent + "\r\n\r\nevent:end\r\n\r\n", []uint64{7}, "EOF"},
		"data in several lines":          {"data: " + strings.Replace(someEvent, ",", ",\ndata:", 3) + "\n\nevent: end\n\n", []uint64{0}, "EOF"},
		"unknown fields and kinds":       {"retry: 5\nfoo\n\nevent: news\ndata: x\n\nevent: end\n\n", nil, "EOF"},
		"nothing":                        {"", nil, "reading the stream: unexpected EOF"},
		"cut in an event":                {"id: 7\ndata: {", nil, "reading the stream: unexpected EOF"},
		"cut behind an event":            {"id: 7\ndata: " + someEvent + "\n\n", []uint64{7}, "reading the stream: unexpected EOF"},
		"a problem":                      {"event: error\ndata: {\"status\":404,\"detail\":\"no run\"}\n\n", nil, "no run"},
		"a problem that is none":         {"event: error\ndata: 7\n\n", nil, `problem "7": json: cannot unmarshal number into Go value of type api.wireProblem`},
		"a bad id":                       {"id: seven\ndata: " + someEvent + "\n\n", nil, `id "seven": want a position`},
		"wrong JSON":                     {"data: {]\n\n", nil, `event "{]": invalid character ']' looking for beginning of object key string`},
		"no type":                        {"data: {}\n\n", nil, `event "{}": no string "type"`},
	} {
		t.Run(name, func(t *testing.T) {
			seqs, err := readStream(strings.NewReader(test.text))
			if fmt.Sprint(seqs) != fmt.Sprint(test.seqs) || err.Error() != test.err {
				t.Errorf("got %v and %q, want %v and %q", seqs, err, test.seqs, test.err)
			}
		})
	}
}

// endless repeats a text.
type endless struct{ text string }

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e.text)
	}
	return n, nil
}

func TestStreamIsBounded(t *testing.T) {
	for name, text := range map[string]string{
		"one line": "a", "data in many lines": "data: " + strings.Repeat("x", 1018) + "\n",
	} {
		if _, err := readStream(endless{text}); !errors.Is(err, errTooLong) {
			t.Errorf("%s: got %v, want %v", name, err, errTooLong)
		}
	}
	// Of a kind that is not looked into, which takes less time.
	for n, want := range map[int]error{maxEvent: io.EOF, maxEvent + 1: errTooLong} {
		text := "event: news\ndata: " + strings.Repeat("x", n) + "\n\nevent: end\n\n"
		if _, err := readStream(strings.NewReader(text)); !errors.Is(err, want) {
			t.Errorf("%d bytes: got %v, want %v", n, err, want)
		}
	}
}

func FuzzEventStream(f *testing.F) {
	for _, text := range []string{
		"id: 7\ndata: " + someEvent + "\n\nevent: end\ndata: {}\n\n", "event: error\ndata: {\"status\":503}\n\n",
		"data\n\n", ":\n", "id:\n\n", "data: {\"type\":\"new\"}\r\n\r\n", "\r\n\ndata: 1\ndata: 2\n\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := newStream(bytes.NewReader(text))
		for range len(text) + 1 {
			e, err := s.next()
			if (e == nil) == (err == nil) {
				t.Fatalf("got event %v and error %v", e, err)
			}
			if err != nil {
				return
			}
			if _, err := nestor.EncodeEvent(e); err != nil {
				t.Fatalf("an event that cannot be written again: %v", err)
			}
		}
		t.Fatal("more events than bytes")
	})
}

// served returns a client whose connections reach answer.
func served(answer func(net.Conn)) *Client {
	c := NewClient("unused")
	c.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			r := bufio.NewReader(server)
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			answer(server)
			io.Copy(io.Discard, r) // until the client is gone
		}()
		return client, nil
	}
	return c
}

func TestSilentDaemonIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := served(func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 7\ndata: "+someEvent+"\n\n")
			time.Sleep(50 * time.Second)
			io.WriteString(conn, ":\n\n")
		})
		defer c.Close()
		begin := time.Now()
		var got []uint64
		var last error
		for e, err := range c.Events(t.Context(), nestor.NewID(begin), EventsQuery{Follow: true}) {
			if last = err; err == nil {
				got = append(got, e.Head().Seq)
				time.Sleep(time.Hour) // the reader's time does not count
			}
		}
		if took := time.Since(begin); len(got) != 1 || !errors.Is(last, ErrDisconnected) || took != time.Hour+silence {
			t.Errorf("got events %v and %v after %v", got, last, took)
		}
	})
}

func TestEventsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := served(func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n:\n\n")
		})
		defer c.Close()
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(enough) })
		for _, err := range c.Events(ctx, nestor.NewID(time.Now()), EventsQuery{}) {
			if !errors.Is(err, enough) || errors.Is(err, ErrDisconnected) {
				t.Errorf("got %v, want the cause", err)
			}
		}
	})
}

func TestAnswersThatAreNone(t *testing.T) {
	for name, test := range map[string]struct{ answer, want string }{
		"a page":       {"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>", `answer 502 Bad Gateway: "<html>"`},
		"a redirect":   {"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", `answer 302 Found: ""`},
		"not JSON":     {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n?", "answer to /v1/info: invalid character '?' looking for beginning of value"},
		"cut":          {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "the daemon went away: unexpected EOF"},
		"another type": {"HTTP/1.1 404 Not Found\r\nContent-Length: 25\r\n\r\n{\"type\":\"x\",\"detail\":\"y\"}", "y"},
	} {
		t.Run(name, func(t *testing.T) {
			c := served(func(conn net.Conn) {
				io.WriteString(conn, test.answer)
				conn.Close()
			})
			defer c.Close()
			if _, err := c.Info(t.Context()); err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestAnswerThatIsNoStream(t *testing.T) {
	c := served(func(conn net.Conn) {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi")
	})
	defer c.Close()
	n := 0
	for _, err := range c.Events(t.Context(), "r", EventsQuery{}) {
		n++
		want := `events of run r: the answer is "text/html" instead of text/event-stream; does a daemon listen there?`
		if err == nil || err.Error() != want || errors.Is(err, ErrDisconnected) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if n != 1 {
		t.Errorf("%d things were yielded", n)
	}
}

func TestNobodyListens(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // and no proxy is asked
	c := NewClient(filepath.Join(t.TempDir(), "s"))
	defer c.Close()
	if _, err := c.Info(t.Context()); !errors.Is(err, ErrNoDaemon) || errors.Is(err, ErrDisconnected) {
		t.Errorf("Info: %v", err)
	}
	for _, err := range c.Events(t.Context(), nestor.NewID(time.Now()), EventsQuery{}) {
		if !errors.Is(err, ErrNoDaemon) {
			t.Errorf("Events: %v", err)
		}
	}
}
