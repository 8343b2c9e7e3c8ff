package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/eventlog"
)

// some are n events of one run, the first at a position.
func some(t testing.TB, first, n, size int) (events []eventlog.Event) {
	t.Helper()
	root := newID()
	for i := range n {
		data, err := nestor.EncodeEvent(&nestor.ChatStart{Header: head(root, root, 0, i), Message: fmt.Sprint(i, " ", strings.Repeat("word ", size/5))})
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, eventlog.Event{Position: eventlog.Position(first + i), Root: string(root), Run: string(root), N: uint64(i), Data: data})
	}
	return events
}

// filled makes a closed file with events in it.
func filled(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.db")
	h, err := Open(soon(t), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.add(soon(t), some(t, 1, 500, 300)); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenSaysWhatItFound(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a folder", "what? 100%#.db")
	h, err := Open(soon(t), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Opened(); got != (Opened{Created: true}) {
		t.Errorf("the first time: %+v", got)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h, err = Open(soon(t), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Opened(); got != (Opened{}) {
		t.Errorf("the second time: %+v", got)
	}
	h.closeAll() // as a crash would
	if got := mustOpen(t, path).Opened(); got != (Opened{Unclean: true}) {
		t.Errorf("after a crash: %+v", got)
	}
	names, err := filepath.Glob(filepath.Join(dir, "a folder", "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("files are %v: %v", names, err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			t.Errorf("%s can be read by others: %v", name, mode)
		}
	}
}

func TestANewerFileIsRefused(t *testing.T) {
	path := filled(t)
	h, err := Open(soon(t), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := setMeta(soon(t), h.write, metaSchema, "1000"); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	for _, accept := range []bool{false, true} {
		_, err := Open(soon(t), Options{Path: path, AcceptDamage: accept})
		if !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "version 1000") {
			t.Errorf("got %v", err)
		}
	}
}

func TestADamagedFileIsRefusedOrMovedAside(t *testing.T) {
	for name, damage := range map[string]func(*testing.T, string){
		"text": func(t *testing.T, path string) {
			write(t, path, []byte(strings.Repeat("this is no database\n", 500)))
		},
		"cut off in its first page": func(t *testing.T, path string) {
			if err := os.Truncate(path, 700); err != nil {
				t.Fatal(err)
			}
		},
		"cut off in the middle": func(t *testing.T, path string) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, info.Size()/2/4096*4096); err != nil {
				t.Fatal(err)
			}
		},
		"its schema overwritten": func(t *testing.T, path string) { overwrite(t, path, 100, 2000) },
		"gone, but for its journal": func(t *testing.T, path string) {
			if err := os.Rename(path, path+"-wal"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filled(t)
			damage(t, path)
			_, err := Open(soon(t), Options{Path: path})
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "backup") {
				t.Fatalf("got %v", err)
			}
			h, err := Open(soon(t), Options{Path: path, AcceptDamage: true})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			if got := h.Opened(); !got.Created || got.Damaged == "" {
				t.Errorf("opened: %+v", got)
			}
			aside, err := filepath.Glob(h.Opened().Damaged + "*")
			if err != nil || len(aside) == 0 {
				t.Errorf("nothing was moved aside: %v", err)
			}
			if at, err := h.Projected(soon(t)); at != 0 || err != nil {
				t.Errorf("projected up to %d: %v", at, err)
			}
			if err := h.add(soon(t), some(t, 1, 3, 10)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Damage that opening does not meet is met by the check after a crash, by
// Check, and by who reads it: always as an error.
func TestDamageInTheMiddleIsFound(t *testing.T) {
	path := filled(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, path, info.Size()/2, 3*4096)
	h, err := Open(soon(t), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Check(soon(t)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
		t.Errorf("checking: %v", err)
	}
	h.closeAll() // as a crash would
	if _, err := Open(soon(t), Options{Path: path}); !errors.Is(err, ErrDamaged) {
		t.Errorf("opening after a crash: %v", err)
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// overwrite puts something else into a file.
func overwrite(t *testing.T, path string, at, n int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(strings.Repeat("\xa5", int(n))), at)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestABackupIsWhole(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t, dir)
	w.project()
	_, _, events := small(true)
	w.until(t, w.append(t, events...))
	if n, err := w.h.Archive(soon(t), w.log, forgetNothing, 0); n != 1 || err != nil {
		t.Fatalf("archived %d trees: %v", n, err)
	}
	wantEvents, wantRuns := stored(t, w.h)
	to := filepath.Join(dir, "backup.db")
	// It is written while others write.
	writing := background(t, "writing", func(ctx context.Context) error {
		for i := 0; ctx.Err() == nil; i++ {
			root := newID()
			data, err := nestor.EncodeEvent(&nestor.RunQueued{Header: head(root, root, 0, 0)})
			if err != nil {
				return err
			}
			if _, err := w.log.Append(ctx, string(root), string(root), data); err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
	if err := w.h.Backup(soon(t), to); err != nil {
		t.Fatal(err)
	}
	writing()
	if err := w.h.Backup(soon(t), to); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), to) {
		t.Errorf("over another: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".history-*"))
	if err != nil || left != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
	b := mustOpen(t, to)
	if err := b.Check(soon(t)); err != nil {
		t.Error(err)
	}
	gotEvents, gotRuns := stored(t, b)
	sameEvents(t, gotEvents[:len(wantEvents)], wantEvents)
	if !reflect.DeepEqual(gotRuns[len(gotRuns)-2:], wantRuns[len(wantRuns)-2:]) {
		t.Errorf("got %+v\nwant %+v", gotRuns, wantRuns)
	}
	if hits, err := b.Search(soon(t), "swans", Query{}); len(hits) != 1 || err != nil {
		t.Errorf("found %v: %v", hits, err)
	}
	if err := w.h.Backup(soon(t), filepath.Join(dir, "no such folder", "backup.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into no folder: %v", err)
	}
}
