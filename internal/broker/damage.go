package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// DamageError says what is gone from the files of an embedded server. It is
// [ErrDamaged], and the next Open of the folder finds it again, until
// Options.AcceptDamage is set.
type DamageError struct {
	Dir  string
	Lost []string // a sentence for each stream
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("the broker's files in %s are damaged: %s: put a copy of the folder back, or accept the damage to go on with what is left", e.Dir, strings.Join(e.Lost, "; "))
}

func (e *DamageError) Unwrap() error { return ErrDamaged }

// damaged remembers what is lost, since the server has forgotten it at its next
// start, and returns it as an error.
func (b *Broker) damaged(lost []string) error {
	b.marks.Lost = lost
	return errors.Join(&DamageError{Dir: b.dir, Lost: lost}, b.marks.write())
}

// marks is what is known of the files from the time when they were last used.
// It is kept beside them.
type marks struct {
	dir string

	Clean  bool              `json:"clean"`            // whether the server was shut down
	Last   map[string]uint64 `json:"last"`             // sequence of each stream; a lower bound if not clean
	Blocks inventory         `json:"blocks,omitempty"` // if clean
	Lost   []string          `json:"lost,omitempty"`   // damage that was found and not accepted
}

// marksEvery is how long a stream can have grown without a mark. What was
// acknowledged since, and then cut off together with the end of the last block
// while nothing ran, is not noticed.
const marksEvery = 5 * time.Second

// maxMarks bounds the file. A stream of 10 GiB has 1,280 blocks.
const maxMarks = 16 << 20

func readMarks(dir string) (*marks, error) {
	m := &marks{dir: dir}
	text, err := os.ReadFile(m.name())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m, nil
	case err != nil:
		return nil, fmt.Errorf("reading the broker's marks: %w", err)
	}
	if len(text) > maxMarks {
		err = errors.New("it is too long")
	} else {
		err = json.Unmarshal(text, m)
	}
	if err != nil {
		*m = marks{dir: dir, Lost: []string{fmt.Sprintf("%s cannot be read (%v), so what else is gone is not known", m.name(), err)}}
	}
	return m, nil
}

func (m *marks) name() string { return filepath.Join(m.dir, "marks.json") }

// write replaces the file, for good when it returns.
func (m *marks) write() error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := replaceFile(m.name(), text); err != nil {
		return fmt.Errorf("writing the broker's marks: %w", err)
	}
	return nil
}

// replaceFile replaces a file, for good when it returns.
func replaceFile(name string, text []byte) error {
	next := name + ".next"
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// begin compares the files with the marks before the server touches them.
func (m *marks) begin(accept bool) (inventory, error) {
	if accept {
		m.Lost, m.Last = nil, nil // what is gone is gone
	} else if len(m.Lost) > 0 {
		return nil, &DamageError{Dir: m.dir, Lost: m.Lost}
	}
	found, err := take(m.dir)
	if err != nil {
		return nil, err
	}
	if !m.Clean {
		if err := found.healMeta(m.dir, m.Last); err != nil {
			return nil, err
		}
	}
	var lost []string
	switch {
	case accept:
	case m.Clean:
		lost = found.since(m.Blocks)
	default:
		if lost, err = found.verify(m.dir, m.Last); err != nil {
			return nil, err
		}
	}
	if len(lost) > 0 {
		// Nothing was touched: a copy of the file heals it.
		return nil, &DamageError{Dir: m.dir, Lost: lost}
	}
	return found, nil
}

// use writes that the files are in use, unless that is what they say already: before
// anything is stored.
func (m *marks) use(accept bool) error {
	if !m.Clean && !accept {
		return nil
	}
	m.Clean, m.Blocks = false, nil
	return m.write()
}

// beyond returns sequences that no stream can have reached: more than it takes
// in between two marks.
func (m *marks) beyond() map[string]uint64 {
	first := make(map[string]uint64, len(m.Last))
	for name, last := range m.Last {
		first[name] = last + 1<<20
	}
	return first
}

// closed writes that the server has been shut down.
func (m *marks) closed() error {
	blocks, err := take(m.dir)
	if err != nil {
		return err
	}
	m.Clean, m.Blocks = true, blocks
	return m.write()
}

// lost lists what the server, which has read the files, did not find.
func (m *marks) lost(before inventory, now streams) []string {
	var lost []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		is, ok := now[name]
		if !ok {
			lost = append(lost, fmt.Sprintf("stream %s could not be read", name))
			continue
		}
		if gone := is.State.Lost; gone != nil && len(gone.Msgs) > 0 {
			lost = append(lost, fmt.Sprintf("%d messages of stream %s, the first with sequence %d", len(gone.Msgs), name, gone.Msgs[0]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Last)) {
		if is, ok := now[name]; ok && is.State.LastSeq < m.Last[name] {
			lost = append(lost, fmt.Sprintf("stream %s ends at sequence %d, and had reached %d", name, is.State.LastSeq, m.Last[name]))
		}
	}
	return lost
}

// keepMarks starts the goroutine that writes how far the streams are, and
// writes it once. Broker.shutdown ends it.
func (b *Broker) keepMarks() error {
	if err := b.mark(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.marked = cancel, make(chan struct{})
	go func() {
		defer close(b.marked)
		tick := time.NewTicker(marksEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := b.mark(); err != nil {
					b.log.Warnf("%v", err)
				}
			case <-ctx.Done():
				b.noteLast() // it is written when the server is shut down
				return
			}
		}
	}()
	return nil
}

// mark writes how far the streams are, if they have grown.
func (b *Broker) mark() error {
	if grown, err := b.noteLast(); err != nil || !grown {
		return err
	}
	return b.marks.write()
}

// noteLast notes how far the streams are, and tells whether they have grown.
func (b *Broker) noteLast() (grown bool, err error) {
	state, err := b.state()
	if err != nil {
		return false, err
	}
	last := make(map[string]uint64, len(state))
	for name, s := range state {
		last[name] = s.State.LastSeq
	}
	if maps.Equal(last, b.marks.Last) {
		return false, nil
	}
	b.marks.Last = last
	return true, nil
}

// streams are what the server has, by name.
type streams map[string]server.StreamDetail

// state asks the embedded server itself: it is cheaper than by message, and
// works when no message can be sent.
func (b *Broker) state() (streams, error) {
	account, err := b.srv.JszAccount(&server.JSzOptions{Account: server.DEFAULT_GLOBAL_ACCOUNT, Streams: true, Config: true})
	if err != nil {
		return nil, fmt.Errorf("asking the broker in %s for its streams: %w", b.dir, err)
	}
	all := streams{}
	for _, s := range account.Streams {
		all[s.Name] = s
	}
	return all, nil
}

// streamsDir is where the server keeps a folder for each stream.
const streamsDir = server.JetStreamStoreDir + "/" + server.DEFAULT_GLOBAL_ACCOUNT + "/streams"

// inventory lists the files of messages, by stream.
type inventory map[string]*blocks

type blocks struct {
	Sizes map[string]int64 `json:"sizes"` // by the names of the files
}

// take lists what is on disk. No folder means no streams.
func take(dir string) (inventory, error) {
	root := filepath.Join(dir, streamsDir)
	streams, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return inventory{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the broker's files: %w", err)
	}
	found := inventory{}
	for _, s := range streams {
		if !s.IsDir() || strings.HasPrefix(s.Name(), ".") { // a stream that is being deleted
			continue
		}
		one := &blocks{Sizes: map[string]int64{}}
		found[s.Name()] = one
		files, err := os.ReadDir(filepath.Join(root, s.Name(), "msgs"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("listing the broker's files: %w", err)
		}
		for _, f := range files {
			if filepath.Ext(f.Name()) != ".blk" {
				continue
			}
			info, err := f.Info()
			if err != nil {
				return nil, fmt.Errorf("listing the broker's files: %w", err)
			}
			one.Sizes[f.Name()] = info.Size()
		}
	}
	return found, nil
}

// putAside moves the folders of streams that the server did not read out of its
// way: it would make new streams in them, with the old configuration's files.
func (now inventory) putAside(dir string, read streams) error {
	for name := range now {
		if _, ok := read[name]; ok {
			continue
		}
		aside := filepath.Join(dir, "damaged")
		if err := os.MkdirAll(aside, 0o700); err != nil {
			return err
		}
		to := filepath.Join(aside, name+time.Now().UTC().Format("-20060102T150405.000000000"))
		if err := os.Rename(filepath.Join(dir, streamsDir, name), to); err != nil {
			return fmt.Errorf("moving damaged files aside: %w", err)
		}
	}
	return nil
}

// since lists what is not as it was at a clean end.
func (now inventory) since(was inventory) []string {
	var lost []string
	for _, name := range slices.Sorted(maps.Keys(was)) {
		found, ok := now[name]
		if was[name] == nil {
			continue // it says nothing
		}
		if !ok {
			lost = append(lost, fmt.Sprintf("the folder of stream %s is missing", name))
			continue
		}
		for _, file := range slices.Sorted(maps.Keys(was[name].Sizes)) {
			size, ok := found.Sizes[file]
			switch before := was[name].Sizes[file]; {
			case !ok:
				lost = append(lost, fmt.Sprintf("%s of stream %s is missing", file, name))
			case size != before:
				lost = append(lost, fmt.Sprintf("%s of stream %s has %d bytes, and had %d", file, name, size, before))
			}
		}
	}
	return lost
}
