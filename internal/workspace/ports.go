package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Ports that are handed out: below those that Linux, macOS and Windows give to
// whoever asks for any.
const (
	firstPort = 20_000
	lastPort  = 31_999
	maxPorts  = 100
)

// block are ports of one run, as long as the run holds its lock.
type block struct {
	First int    `json:"first"`
	Count int    `json:"count"`
	Lock  string `json:"lock"`
}

// reserve gives a run its ports, and returns what its processes are told of them.
// No other run gets them, of whatever daemon of this user, before it is closed or
// its process is gone.
func (s *Spaces) reserve(ctx context.Context, sp *Space) ([]string, error) {
	n := s.options.Ports
	if n == 0 {
		return nil, nil
	}
	if n < 0 || n > maxPorts {
		return nil, fmt.Errorf("ports: %d: want at most %d", n, maxPorts)
	}
	mine := block{Count: n, Lock: filepath.Join(sp.home, "lock")}
	err := s.changePorts(ctx, func(blocks []block) ([]block, error) {
		var others []block
		for _, b := range blocks {
			switch {
			case b.Lock == mine.Lock:
				mine.First = b.First // the ones that it had, if they are still free
			case isHeld(b.Lock):
				others = append(others, b)
			}
		}
		first, err := findPorts(others, mine)
		if err != nil {
			return nil, err
		}
		mine.First = first
		return append(others, mine), nil
	})
	if err != nil {
		return nil, fmt.Errorf("reserving %d ports: %w", n, err)
	}
	return []string{"NESTOR_PORT_BASE=" + strconv.Itoa(mine.First), "NESTOR_PORT_COUNT=" + strconv.Itoa(n)}, nil
}

// release gives the ports of a run back.
func (s *Spaces) release(ctx context.Context, home string) error {
	if s.options.Ports == 0 {
		return nil
	}
	return s.changePorts(ctx, func(blocks []block) ([]block, error) {
		var others []block
		for _, b := range blocks {
			if b.Lock != filepath.Join(home, "lock") {
				others = append(others, b)
			}
		}
		return others, nil
	})
}

// changePorts changes the list of blocks, one process after the other.
func (s *Spaces) changePorts(ctx context.Context, change func([]block) ([]block, error)) error {
	name := s.options.PortsFile
	if name == "" {
		dir := filepath.Join(os.TempDir(), "nestor-"+strconv.Itoa(os.Getuid()))
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if info, err := os.Lstat(dir); err != nil {
			return err
		} else if !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf("%s can be written by others: remove it", dir)
		}
		name = filepath.Join(dir, "ports.json")
	}
	lock, err := waitLock(ctx, name+".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	var blocks []block
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &blocks); err != nil {
			return fmt.Errorf("reading %s: %w: remove it when no daemon runs", name, err)
		}
	}
	if blocks, err = change(blocks); err != nil {
		return err
	}
	if text, err = json.Marshal(blocks); err != nil {
		return err
	}
	return replaceFile(name, text)
}

// findPorts returns the first of so many ports that nobody has.
func findPorts(others []block, mine block) (int, error) {
	count := (lastPort + 1 - firstPort) / mine.Count
	hash := fnv.New32a()
	hash.Write([]byte(mine.Lock))
	begin := int(hash.Sum32() % uint32(count))
	for i := -1; i < count; i++ {
		b := block{First: firstPort + (begin+i)%count*mine.Count, Count: mine.Count}
		if i < 0 {
			b.First = mine.First
		}
		if b.First >= firstPort && b.First+b.Count-1 <= lastPort && !meets(others, b) && areFree(b) {
			return b.First, nil
		}
	}
	return 0, fmt.Errorf("of %d to %d, no %d in a row are free: close runs, or ask for fewer", firstPort, lastPort, mine.Count)
}

func meets(others []block, b block) bool {
	for _, o := range others {
		if b.First < o.First+o.Count && o.First < b.First+b.Count {
			return true
		}
	}
	return false
}

// areFree tells whether nobody listens on any port of a block.
func areFree(b block) bool {
	for port := b.First; port < b.First+b.Count; port++ {
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

// isHeld tells whether a run has the lock.
func isHeld(name string) bool {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer file.Close()
	taken, err := tryLock(file)
	return err != nil || !taken
}

// waitLock locks a file when nobody has it.
func waitLock(ctx context.Context, name string) (*os.File, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		file, err := lockFile(name)
		if file != nil || err != nil {
			return file, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %s: %w", name, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}
