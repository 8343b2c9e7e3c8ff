// Package history is all SQL: the archive of finished trees, lists, filters,
// search and statistics, in one SQLite file that is projected from the log.
//
// [History.Project] follows the log and writes each event once: the position up
// to which it has come is written in the same transaction, and positions are the
// key of events. So it may be killed at any moment, and be run from the
// beginning again. What is live is in the log as well: if the file is lost, that
// much is projected anew. Trees that were archived are in the file alone, which
// is what [History.Backup] is for.
//
// [History.Archive] lets the log forget what has ended. A tree is marked as
// archived when all of its events are here, which is verified; then the engine
// forgets its documents, then the stream its events. Each step is noted when it
// is done, and done again when that is not known. From the mark on
// [History.Events] yields the tree to those who follow the log.
//
// # The file
//
// Every commit is synced (journal WAL, synchronous FULL). One connection writes,
// a few read, and neither waits for the other. Whoever opens a file of a newer
// schema is refused; an older one is migrated. A file that was not closed is
// checked for a second when it is opened; [History.Check] is the whole check.
//
// # The driver
//
// modernc.org/sqlite is the C code of SQLite in Go, its own way of locking and
// syncing files included, which is what an archive is trusted to.
// github.com/ncruces/go-sqlite3, with an implementation of its own there, writes
// faster and opens slower; docs/benchmarks.md has the figures and
// BenchmarkDrivers measures them again. A burst that the log takes in chunks is
// faster than either can write: the projection then lags, and catches up.
package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // registers the driver
)

// Options are those of a history. Path is required.
type Options struct {
	Path string // of the file; its folder is made

	// AcceptDamage lets Open move a damaged file aside and begin with an empty
	// one: what was archived is not in it.
	AcceptDamage bool

	Readers int // connections that read at once; zero means 4

	// Late is how long an event may wait while others keep coming, unless somebody
	// waits for it; zero means a second.
	Late time.Duration
}

// Opened is what Open found.
type Opened struct {
	Created bool   // there was no file: what was archived before, if anything was, is not known
	Damaged string // where the damaged file is that was moved aside; empty if none was
	Unclean bool   // who had the file before did not close it
}

// History is an open file. All methods may be called at once.
type History struct {
	path   string
	opened Opened
	late   time.Duration
	write  *sql.DB // one connection, whose transactions are immediate
	read   *sql.DB
	hurry  chan struct{} // capacity 1: holds a token when somebody waits for what is not written yet

	mu       sync.Mutex           // guards what follows
	compiled map[string]*sql.Stmt // of batches, on write; nil if there was none yet
}

// checkFor is how long a file is checked that was not closed. What the check
// does not reach is found when it is read.
const checkFor = time.Second

// Open opens the file, or makes it. It fails with [ErrDamaged], [ErrNewer],
// [ErrReadOnly] or [ErrFull] if that is the reason.
func Open(ctx context.Context, o Options) (*History, error) {
	if o.Path == "" {
		return nil, errors.New("opening the history: no path")
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("opening history %s: %w", o.Path, err)
	}
	if o.Readers == 0 {
		o.Readers = 4
	}
	if o.Late == 0 {
		o.Late = time.Second
	}
	h, err := open(ctx, path, o.Readers)
	if o.AcceptDamage && errors.Is(err, ErrDamaged) {
		aside, moved := moveAside(path, time.Now())
		if moved != nil {
			return nil, fmt.Errorf("moving damaged history %s aside: %w", path, moved)
		}
		if h, err = open(ctx, path, o.Readers); err == nil {
			h.opened.Damaged = aside
		}
	}
	if err == nil {
		h.late = o.Late
	}
	return h, err
}

func open(ctx context.Context, path string, readers int) (_ *History, err error) {
	h := &History{path: path, hurry: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			err = fmt.Errorf("opening %w", h.explain(err))
			h.closeAll()
		}
	}()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := refuseOrphan(path); err != nil {
			return nil, err
		}
		h.opened.Created = true
	}
	// Made here, not by the driver: transcripts are nobody else's business.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	if h.write, err = connect(path, 1, "_txlock=immediate"); err != nil {
		return nil, err
	}
	if h.read, err = connect(path, readers, "_pragma=query_only(1)"); err != nil {
		return nil, err
	}
	if err := h.migrate(ctx); err != nil {
		return nil, err
	}
	if err := h.markOpen(ctx); err != nil {
		return nil, err
	}
	return h, nil
}

// refuseOrphan fails if there is a journal without its file, which SQLite would
// throw away.
func refuseOrphan(path string) error {
	info, err := os.Stat(path + "-wal")
	if err != nil || info.Size() == 0 {
		return nil
	}
	return fmt.Errorf("%w: the file is gone but its journal %s-wal is there: put the file or a backup back, or remove the journal", ErrDamaged, path)
}

// connect opens connections to a file. Nothing is read yet.
func connect(path string, connections int, options string) (*sql.DB, error) {
	name := filepath.ToSlash(path)
	if !strings.HasPrefix(name, "/") {
		name = "/" + name // the letter of a drive
	}
	name = (&url.URL{Path: name}).EscapedPath()
	db, err := sql.Open("sqlite", "file:"+name+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=temp_store(MEMORY)&"+options)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// markOpen notes that the file is in use, and checks it if it already was.
func (h *History) markOpen(ctx context.Context) error {
	state, err := getMeta(ctx, h.write, metaState)
	if err != nil {
		return err
	}
	if state == stateOpen {
		h.opened.Unclean = true
		bounded, stop := context.WithTimeout(ctx, checkFor)
		defer stop()
		if err := h.check(bounded); err != nil && bounded.Err() == nil {
			return err
		}
	}
	return setMeta(ctx, h.write, metaState, stateOpen)
}

// Opened tells what Open found.
func (h *History) Opened() Opened { return h.opened }

// Check reads the whole file and fails with [ErrDamaged] if it is. It takes
// seconds for each gigabyte.
func (h *History) Check(ctx context.Context) error {
	if err := h.check(ctx); err != nil {
		return fmt.Errorf("checking %w", h.explain(err))
	}
	return nil
}

func (h *History) check(ctx context.Context) error {
	var text string
	if err := h.read.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&text); err != nil {
		return err
	}
	if text != "ok" {
		return fmt.Errorf("%w: %s", ErrDamaged, text)
	}
	return nil
}

// Close closes the file. Nothing else may be called then, and what is going on
// must have ended.
func (h *History) Close() error {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	err := setMeta(ctx, h.write, metaState, stateClosed)
	if err := errors.Join(err, h.closeAll()); err != nil {
		return fmt.Errorf("closing %w", h.explain(err))
	}
	return nil
}

// closeAll closes the writer last, who moves the journal into the file.
func (h *History) closeAll() error {
	var errs []error
	for _, db := range []*sql.DB{h.read, h.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// change does f in one transaction.
func (h *History) change(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := h.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
