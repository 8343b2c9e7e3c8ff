package anthropic

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Records keep the records of sessions. The methods may be called from any
// goroutine; one session has one writer.
//
// A record is a line as the Claude CLI writes it: the init of a turn, what the
// user said, a whole answer of the model, the result of a tool, the boundary of
// a compaction with all that is left of the conversation, the result of a turn.
// A record is appended before anybody acts on it.
type Records interface {
	// Append adds a record behind those of the session. When it returns nil, a
	// Load, also one of another process after this one is killed, returns it.
	Append(ctx context.Context, session string, record json.RawMessage) error
	// Load returns the records of a session in their order, none if there is no
	// such session.
	Load(ctx context.Context, session string) ([]json.RawMessage, error)
}

// maxRecord bounds the size of one record.
const maxRecord = 64 << 20

// MemRecords keep records in memory. When they hold more than Max bytes, the
// session that was written to longest ago is forgotten. The zero value is ready.
type MemRecords struct {
	Max int // zero means 64 MB

	mu       sync.Mutex // guards what follows
	sessions map[string]*memSession
	size     int // of all records
	clock    int // counts what was appended
}

// memSession is a session in memory.
type memSession struct {
	records []json.RawMessage
	size    int
	touched int // the clock of the last record
}

// Append adds a record.
func (m *MemRecords) Append(_ context.Context, session string, record json.RawMessage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions == nil {
		m.sessions = map[string]*memSession{}
	}
	s := m.sessions[session]
	if s == nil {
		s = &memSession{}
		m.sessions[session] = s
	}
	m.clock++
	s.records, s.touched = append(s.records, bytes.Clone(record)), m.clock
	s.size += len(record)
	m.size += len(record)
	limit := m.Max
	if limit <= 0 {
		limit = 64 << 20
	}
	for m.size > limit && len(m.sessions) > 1 {
		m.forget()
	}
	return nil
}

// forget drops the session that was written to longest ago.
func (m *MemRecords) forget() {
	oldest := ""
	for name, s := range m.sessions {
		if oldest == "" || s.touched < m.sessions[oldest].touched {
			oldest = name
		}
	}
	m.size -= m.sessions[oldest].size
	delete(m.sessions, oldest)
}

// Load returns the records of a session.
func (m *MemRecords) Load(_ context.Context, session string) ([]json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[session]; s != nil {
		return slices.Clone(s.records), nil
	}
	return nil, nil
}

// DirRecords keep the records of each session in a file of its own,
// <session>.jsonl, in the folder that they are named by. A line that a killed
// process left unfinished at the end is as if it had never been.
type DirRecords string

// sessionName is what a session may be called, for it becomes a file.
var sessionName = pattern(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

func (d DirRecords) path(session string) (string, error) {
	if !sessionName().MatchString(session) {
		return "", fmt.Errorf("%q is no name of a session: it has letters, digits, - and _", session)
	}
	return filepath.Join(string(d), session+".jsonl"), nil
}

// Append writes a record and waits until the disk has it.
func (d DirRecords) Append(_ context.Context, session string, record json.RawMessage) error {
	path, err := d.path(session)
	if err != nil {
		return err
	}
	if bytes.IndexByte(record, '\n') >= 0 {
		return errors.New("appending a record: it has more than one line")
	}
	if err := d.append(path, append(bytes.Clone(record), '\n')); err != nil {
		return fmt.Errorf("appending a record: %w", err)
	}
	return nil
}

func (d DirRecords) append(path string, line []byte) error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	_, statErr := os.Stat(path)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	end, err := whole(f)
	if err != nil {
		return err
	}
	if err := f.Truncate(end); err != nil {
		return err
	}
	if _, err := f.WriteAt(line, end); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if errors.Is(statErr, fs.ErrNotExist) {
		return syncDir(string(d))
	}
	return nil
}

// whole returns where the last finished line of f ends.
func whole(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	var buf [4096]byte
	for end := info.Size(); end > 0; {
		n := min(end, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], end-n); err != nil && err != io.EOF {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1, nil
		}
		end -= n
	}
	return 0, nil
}

// syncDir makes the name of a new file last. Not every system can.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	f.Sync()
	return nil
}

// Load reads the records of a session.
func (d DirRecords) Load(_ context.Context, session string) (list []json.RawMessage, _ error) {
	path, err := d.path(session)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("loading records: %w", err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	for n := 1; ; n++ {
		line, err := readLine(r)
		if err == io.EOF {
			return list, nil // what stands behind the last newline was never finished
		}
		if err != nil {
			return nil, fmt.Errorf("loading records: %s:%d: %w", path, n, err)
		}
		if len(line) > 0 {
			list = append(list, line)
		}
	}
}

// readLine returns the next finished line without its newline.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxRecord:
			return nil, fmt.Errorf("a record is longer than %d bytes", maxRecord)
		case err == nil:
			return line[:len(line)-1], nil
		case err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}
