// Package nestor is the vocabulary of Nestor: runs and the tasks that they come
// of, graphs of tasks, limits, results, and the events of a run with their JSON.
// It has no I/O: what happens to these values is decided in package plan and done
// elsewhere.
package nestor

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// ID names a run: a UUID of version 7, in lower case. IDs sort by the time that
// they were made.
type ID string

// NewID makes an ID of now.
func NewID(now time.Time) ID {
	var b [16]byte
	rand.Read(b[:])
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16|uint64(b[6])<<8|uint64(b[7]))
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	return IDFrom(b)
}

// IDFrom returns the ID of the bytes of a UUID.
func IDFrom(b [16]byte) ID {
	var text [36]byte
	hex.Encode(text[:8], b[:4])
	hex.Encode(text[9:13], b[4:6])
	hex.Encode(text[14:18], b[6:8])
	hex.Encode(text[19:23], b[8:10])
	hex.Encode(text[24:], b[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return ID(text[:])
}

// ParseID reads an ID. What names files and subjects has to go through it.
func ParseID(text string) (ID, error) {
	id := ID(text)
	if err := id.check(); err != nil {
		return "", fmt.Errorf("run id %.60q: %w", text, err)
	}
	return id, nil
}

var errNotUUID = errors.New("want a UUID such as 0199d3a2-7c1e-7b0a-8f3e-5a1c2b3d4e5f")

func (id ID) check() error {
	if len(id) != 36 {
		return errNotUUID
	}
	for i, c := range []byte(id) {
		digit := '0' <= c && c <= '9' || 'a' <= c && c <= 'f'
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash && c != '-' || !dash && !digit {
			return errNotUUID
		}
	}
	return nil
}

// Bytes returns the bytes of the UUID that id is.
func (id ID) Bytes() (b [16]byte, err error) {
	if _, err := ParseID(string(id)); err != nil {
		return b, err
	}
	var digits [32]byte
	n := copy(digits[:], id[:8])
	for _, at := range [][2]int{{9, 13}, {14, 18}, {19, 23}, {24, 36}} {
		n += copy(digits[n:], id[at[0]:at[1]])
	}
	_, err = hex.Decode(b[:], digits[:])
	return b, err
}

// Time returns when the ID was made, to the millisecond; the zero Time if id is
// no UUID of version 7.
func (id ID) Time() time.Time {
	if id.check() != nil || id[14] != '7' {
		return time.Time{}
	}
	b, err := hex.DecodeString(string(id[:8] + id[9:13]))
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(append([]byte{0, 0}, b...)))).UTC()
}
