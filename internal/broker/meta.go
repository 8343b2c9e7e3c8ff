package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats-server/v2/server"
)

// healMeta makes good what a server left that was killed while it made a stream, or
// changed how one is declared. It keeps that in two files, the second with the checksum
// of the first, and writes one after the other: a stream between them it does not read any
// more (seen in 2.15.2). One that was being made and has no message yet is removed, and
// will be made again; of another the checksum is written. All else is left to be found
// damaged.
func (now inventory) healMeta(dir string, last map[string]uint64) error {
	for stream, has := range now {
		folder := filepath.Join(dir, streamsDir, stream)
		meta, err := os.ReadFile(filepath.Join(folder, server.JetStreamMetaFile))
		switch {
		case errors.Is(err, fs.ErrNotExist) && has.empty() && last[stream] == 0:
			if err := os.RemoveAll(folder); err != nil {
				return fmt.Errorf("removing a stream that was not made: %w", err)
			}
			delete(now, stream)
			continue
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return fmt.Errorf("reading the broker's files: %w", err)
		}
		want, err := metaSum(stream, meta)
		if err != nil {
			return err
		}
		name := filepath.Join(folder, server.JetStreamMetaFileSum)
		sum, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reading the broker's files: %w", err)
		}
		var config server.FileStreamInfo
		if string(sum) == want || json.Unmarshal(meta, &config) != nil || config.Name != stream {
			continue
		}
		if err := replaceFile(name, []byte(want)); err != nil {
			return fmt.Errorf("writing the checksum of stream %s: %w", stream, err)
		}
	}
	return nil
}

// empty tells whether there is no message.
func (b *blocks) empty() bool {
	for _, size := range b.Sizes {
		if size > 0 {
			return false
		}
	}
	return true
}

// metaSum is the checksum of how a stream is declared.
func metaSum(stream string, meta []byte) (string, error) {
	key := sha256.Sum256([]byte(stream))
	hash, err := highwayhash.New64(key[:])
	if err != nil {
		return "", err
	}
	hash.Write(meta)
	return hex.EncodeToString(hash.Sum(nil)), nil
}
