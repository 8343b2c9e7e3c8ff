package broker

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/dfaf701a/nestor/internal/soak"
)

// A stream whose declaration was being written when the server was killed is there with
// all that it holds, or, if it held nothing, is made again.
func TestDeclarationIsHealed(t *testing.T) {
	for _, test := range []struct {
		name    string
		stream  string
		do      func(t *testing.T, folder string)
		damaged bool
	}{
		{"no message, no declaration", BucketStream(Meta), func(t *testing.T, folder string) {
			remove(t, folder)
			if err := os.MkdirAll(filepath.Join(folder, "msgs"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, true}, // the marks know that it had some
		{"a new stream, no declaration", "NEW", func(t *testing.T, folder string) {
			if err := os.MkdirAll(filepath.Join(folder, "msgs"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"no checksum", Events, func(t *testing.T, folder string) { remove(t, filepath.Join(folder, server.JetStreamMetaFileSum)) }, false},
		{"the checksum before", Events, func(t *testing.T, folder string) {
			change(t, filepath.Join(folder, server.JetStreamMetaFileSum), func([]byte) []byte { return []byte("0123456789abcdef") })
		}, false},
		{"messages, no declaration", Events, func(t *testing.T, folder string) { remove(t, filepath.Join(folder, server.JetStreamMetaFile)) }, true},
		{"no JSON", Events, func(t *testing.T, folder string) {
			change(t, filepath.Join(folder, server.JetStreamMetaFile), func(text []byte) []byte { return text[1:] })
		}, true},
		{"another stream's", Events, func(t *testing.T, folder string) {
			change(t, filepath.Join(folder, server.JetStreamMetaFile), func([]byte) []byte { return []byte(`{"name":"TASKS"}`) })
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filled(t, true)
			test.do(t, filepath.Join(dir, streamsDir, test.stream))
			b, err := Open(soon(t), Options{Dir: dir})
			if test.damaged {
				if !errors.Is(err, ErrDamaged) {
					t.Errorf("it opened, %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			s, err := b.JetStream().Stream(soon(t), Events)
			if err != nil || s.CachedInfo().State.Msgs < 60 {
				t.Errorf("the log is not what it was, %v", err)
			}
		})
	}
}

// After a clean end a checksum that is wrong is damage, not a write that was cut off.
func TestDeclarationIsDamagedAfterACleanEnd(t *testing.T) {
	dir := filled(t, false)
	change(t, filepath.Join(dir, streamsDir, Events, server.JetStreamMetaFileSum), func([]byte) []byte { return []byte("0123456789abcdef") })
	if _, err := Open(soon(t), Options{Dir: dir}); !errors.Is(err, ErrDamaged) {
		t.Errorf("it opened, %v", err)
	}
}

// Who is killed while it makes a folder's streams for the first time leaves a folder that
// can be opened.
func TestFirstOpenOutlivesKills(t *testing.T) {
	for range soak.Of(20, 300) {
		dir := t.TempDir()
		for range 3 {
			c := start(t, "hold", dir)
			time.AfterFunc(time.Duration(rand.Int64N(int64(50*time.Millisecond))), c.kill) // to be killed anywhere in it
			c.wait()
		}
		b, err := Open(soon(t), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		publish(t, b, "event.a.b", 1)
		mustClose(t, b)
	}
}
