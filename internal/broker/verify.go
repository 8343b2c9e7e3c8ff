package broker

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/minio/highwayhash"
)

// The files of messages, as nats-server 2.15.2 writes them: records, one after
// the other, of
//
//	length of the record, 4 bytes; the highest bit says that there are headers
//	sequence, 8 bytes; the two highest bits say: erased, and tombstone
//	time, 8 bytes
//	length of the subject, 2 bytes
//	subject
//	length of the headers, 4 bytes, and the headers, if there are some
//	message
//	checksum, 8 bytes, of all but the lengths
const (
	recordHeader = 4 + 8 + 8 + 2
	recordSum    = 8
	hasHeaders   = 1 << 31
	sequenceBits = 1<<62 - 1
)

// maxBlock bounds a file. The server's largest for the streams of the layout is
// 8 MiB, and may be exceeded by one message.
const maxBlock = 64 << 20

// verify reads every record, and lists what is damaged. A stream must have
// reached the sequence that last says.
func (now inventory) verify(dir string, last map[string]uint64) ([]string, error) {
	var lost []string
	for _, stream := range slices.Sorted(maps.Keys(now)) {
		var reached uint64
		newest := now[stream].last()
		var bad string
		for _, file := range slices.Sorted(maps.Keys(now[stream].Sizes)) {
			name := filepath.Join(dir, streamsDir, stream, "msgs", file)
			index := blockIndex(file)
			if index < 0 || now[stream].Sizes[file] > maxBlock {
				bad = file + " is none of the server's"
				continue
			}
			buf, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("reading the broker's files: %w", err)
			}
			key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, index))
			highest, rest, err := readRecords(buf, key[:])
			reached = max(reached, highest)
			if err != nil && !(file == newest && torn(buf[rest:])) {
				bad = fmt.Sprintf("%s cannot be read from byte %d of %d on: %v", file, rest, len(buf), err)
			}
		}
		switch {
		case bad != "":
			lost = append(lost, fmt.Sprintf("stream %s: %s", stream, bad))
		case reached < last[stream]:
			lost = append(lost, fmt.Sprintf("stream %s ends at sequence %d, and had reached %d", stream, reached, last[stream]))
		}
	}
	return lost, nil
}

// readRecords returns the highest sequence in a block and, with an error, where
// the first record is that cannot be read.
func readRecords(block, key []byte) (highest uint64, at int, err error) {
	hash, err := highwayhash.New64(key)
	if err != nil {
		return 0, 0, err
	}
	le := binary.LittleEndian
	var sum [recordSum]byte
	for at < len(block) {
		rest := block[at:]
		if len(rest) < recordHeader+recordSum {
			return highest, at, errors.New("record is cut")
		}
		size, subject := int64(le.Uint32(rest)&^hasHeaders), int64(le.Uint16(rest[20:]))
		body := int64(recordHeader)
		checked := body + subject
		if le.Uint32(rest)&hasHeaders != 0 {
			checked += 4
		}
		switch {
		case size < checked+recordSum:
			return highest, at, fmt.Errorf("record has a length of %d", size)
		case size > int64(len(rest)):
			return highest, at, errors.New("record is cut")
		}
		hash.Reset()
		hash.Write(rest[4:20])
		hash.Write(rest[body : body+subject])
		hash.Write(rest[checked : size-recordSum])
		if !bytes.Equal(hash.Sum(sum[:0]), rest[size-recordSum:size]) {
			return highest, at, errors.New("checksum is wrong")
		}
		highest = max(highest, le.Uint64(rest[4:])&sequenceBits)
		at += int(size)
	}
	return highest, at, nil
}

// torn reports whether rest, from the first record that cannot be read, is one
// that was being written when the process or the machine ended, and so had not
// been acknowledged: what comes behind a record was written after that had been
// synced.
func torn(rest []byte) bool {
	if len(rest) < recordHeader+recordSum || len(bytes.Trim(rest, "\x00")) == 0 {
		return true
	}
	return int64(binary.LittleEndian.Uint32(rest)&^hasHeaders) >= int64(len(rest))
}

// last is the name of the block that was being written, "" for none.
func (b *blocks) last() string {
	last, highest := "", -1
	for name := range b.Sizes {
		if index := blockIndex(name); index > highest {
			last, highest = name, index
		}
	}
	return last
}

// blockIndex is the number in the name of a block, -1 if it has none.
func blockIndex(name string) int {
	var index int
	if n, err := fmt.Sscanf(name, "%d.blk", &index); err != nil || n != 1 || fmt.Sprintf("%d.blk", index) != name {
		return -1
	}
	return index
}
