package broker

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// filled makes a folder whose log holds 30 messages, and ends its server as
// told: with Close, or with SIGKILL after the marks are written.
func filled(t *testing.T, killed bool) string {
	t.Helper()
	dir := t.TempDir()
	b := mustOpen(t, Options{Dir: dir})
	publish(t, b, "event.a.b", 30)
	mustClose(t, b)
	if !killed {
		return dir
	}
	c := start(t, "write", dir)
	for n := uint64(0); n < 60; {
		line := c.line()
		if line == "" {
			text, _ := c.wait()
			t.Fatal(text)
		}
		n, _ = strconv.ParseUint(line, 10, 64)
	}
	c.kill()
	c.wait()
	return dir
}

// block is the file with the messages of the log.
func block(dir string) string { return filepath.Join(dir, streamsDir, Events, "msgs", "1.blk") }

// change rewrites a file.
func change(t *testing.T, name string, with func([]byte) []byte) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, with(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Stat(name); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}

func TestDamageIsNoticedAndRemembered(t *testing.T) {
	for _, test := range []struct {
		name   string
		killed bool
		do     func(t *testing.T, dir string)
		want   string // in the error
	}{
		{
			name: "block cut at its end",
			do:   func(t *testing.T, dir string) { change(t, block(dir), func(b []byte) []byte { return b[:len(b)-100] }) },
			want: "1.blk of stream EVENTS has",
		},
		{
			name: "block is missing",
			do:   func(t *testing.T, dir string) { remove(t, block(dir)) },
			want: "1.blk of stream EVENTS is missing",
		},
		{
			name: "folder of a stream is missing",
			do:   func(t *testing.T, dir string) { remove(t, filepath.Join(dir, streamsDir, BucketStream(runs[0]))) },
			want: "the folder of stream KV_RUNS is missing",
		},
		{
			name: "all streams are missing",
			do:   func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "jetstream")) },
			want: "the folder of stream EVENTS is missing",
		},
		{
			name: "configuration of a stream is missing",
			do:   func(t *testing.T, dir string) { remove(t, filepath.Join(dir, streamsDir, Events, "meta.inf")) },
			want: "stream EVENTS could not be read",
		},
		{
			name: "configuration of a stream is changed",
			do: func(t *testing.T, dir string) {
				change(t, filepath.Join(dir, streamsDir, Orch, "meta.inf"), func(b []byte) []byte { return bytes.Replace(b, []byte("orch"), []byte("horc"), 1) })
			},
			want: "stream ORCH could not be read",
		},
		{
			name:   "configuration of a stream is missing after a kill",
			killed: true,
			do:     func(t *testing.T, dir string) { remove(t, filepath.Join(dir, streamsDir, "KV_"+Meta, "meta.inf")) },
			want:   "stream KV_META could not be read",
		},
		{
			name:   "folder of a stream is missing after a kill",
			killed: true,
			do:     func(t *testing.T, dir string) { remove(t, filepath.Join(dir, streamsDir, Tasks)) },
			want:   "TASKS was there",
		},
		{
			name:   "a bit flipped in the middle after a kill",
			killed: true,
			do: func(t *testing.T, dir string) {
				change(t, block(dir), func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
			},
			want: "stream EVENTS: 1.blk cannot be read from byte",
		},
		{
			name:   "cut below the mark after a kill",
			killed: true,
			do:     func(t *testing.T, dir string) { change(t, block(dir), func(b []byte) []byte { return b[:len(b)/8] }) },
			want:   "and had reached 30",
		},
		{
			name: "a bit flipped in the middle",
			do: func(t *testing.T, dir string) {
				change(t, block(dir), func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
			},
			want: "stream EVENTS ends at sequence",
		},
		{
			name:   "marks cannot be read",
			killed: true,
			do: func(t *testing.T, dir string) {
				change(t, filepath.Join(dir, "marks.json"), func(b []byte) []byte { return b[:len(b)/2] })
			},
			want: "marks.json cannot be read",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filled(t, test.killed)
			test.do(t, dir)
			for range 2 { // the second time from what the first wrote, or from the same files
				b, err := Open(soon(t), Options{Dir: dir})
				if err == nil {
					b.Close()
					t.Fatal("no error")
				}
				var damage *DamageError
				if !errors.As(err, &damage) || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), dir) {
					t.Fatalf("got %v", err)
				}
			}
			b, err := Open(soon(t), Options{Dir: dir, AcceptDamage: true})
			if err != nil {
				t.Fatalf("accepted: %v", err)
			}
			seq := publish(t, b, "event.a.b", 1)
			if strings.Contains(test.want, "stream EVENTS could not be read") && seq <= 30 {
				t.Errorf("a stream that was made anew begins with %d", seq)
			}
			mustClose(t, b)
			mustClose(t, mustOpen(t, Options{Dir: dir}))
		})
	}
}

func TestRecordThatWasBeingWrittenIsNoDamage(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func([]byte) []byte
	}{
		{"header cut", func(b []byte) []byte { return append(b, 0x50, 1, 0) }},
		{"body cut", func(b []byte) []byte { return append(b, slices.Concat([]byte{0x50, 1, 0, 0x80}, make([]byte, 50))...) }},
		{"zeros", func(b []byte) []byte { return append(b, make([]byte, 500)...) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filled(t, true)
			change(t, block(dir), test.do)
			b := mustOpen(t, Options{Dir: dir})
			s, err := b.JetStream().Stream(soon(t), Events)
			if err != nil {
				t.Fatal(err)
			}
			if state := s.CachedInfo().State; state.Msgs < 60 || state.Msgs != state.LastSeq {
				t.Errorf("%d messages to %d", state.Msgs, state.LastSeq)
			}
			publish(t, b, "event.a.b", 1)
			mustClose(t, b)
			mustClose(t, mustOpen(t, Options{Dir: dir}))
		})
	}
}

func TestPurgedStreamIsNoDamage(t *testing.T) {
	dir := t.TempDir()
	c := start(t, "purge", dir)
	if line := c.line(); line != "purged" {
		text, _ := c.wait()
		t.Fatal(line, text)
	}
	c.kill()
	c.wait()
	b := mustOpen(t, Options{Dir: dir})
	if seq := publish(t, b, "event.a.b", 1); seq != 1001 {
		t.Errorf("the next sequence is %d", seq)
	}
}

func FuzzMarks(f *testing.F) {
	f.Add([]byte(`{"clean":true,"last":{"EVENTS":3},"blocks":{"EVENTS":{"sizes":{"1.blk":100}}}}`))
	f.Add([]byte(`{"blocks":{"EVENTS":null}}`))
	f.Add([]byte(`{"lost":["x"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "marks.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := readMarks(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.begin(false); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	})
}

func FuzzReadRecords(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 100))
	f.Add(bytes.Repeat([]byte{255}, 30))
	f.Add([]byte{40, 0, 0, 0x80, 19: 0, 20: 255, 21: 255, 39: 0})
	key := make([]byte, 32)
	f.Fuzz(func(t *testing.T, block []byte) {
		_, at, err := readRecords(block, key)
		if at < 0 || at > len(block) || err == nil && at != len(block) {
			t.Fatalf("%d of %d bytes, %v", at, len(block), err)
		}
		torn(block[at:])
	})
}
