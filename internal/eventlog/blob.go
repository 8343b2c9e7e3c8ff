package eventlog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor/internal/broker"
)

// PutBlob stores data beside the log, for an event of the tree to refer to, and
// returns the reference when it is durable: the tree's id and the data's hash.
// The same data in the same tree is stored once.
func (l *Log) PutBlob(ctx context.Context, root string, data []byte) (ref string, err error) {
	if err := checkID("root", root); err != nil {
		return "", fmt.Errorf("storing a blob: %w", err)
	}
	if len(data) > MaxBlob {
		return "", fmt.Errorf("storing a blob of %d bytes: %w: at most %d", len(data), ErrTooLarge, MaxBlob)
	}
	store, err := l.blobs(ctx)
	if err != nil {
		return "", fmt.Errorf("storing a blob: %w", err)
	}
	sum := sha256.Sum256(data)
	ref = root + "/" + hex.EncodeToString(sum[:])
	if info, err := store.GetInfo(ctx, ref); err == nil && info.Size == uint64(len(data)) {
		return ref, nil
	}
	if _, err := store.Put(ctx, jetstream.ObjectMeta{Name: ref}, bytes.NewReader(data)); err != nil {
		return "", fmt.Errorf("storing a blob: %w", l.broker.Explain(err))
	}
	return ref, nil
}

// Blob returns what was stored under a reference, or ErrNotFound.
func (l *Log) Blob(ctx context.Context, ref string) ([]byte, error) {
	root, sum, _ := strings.Cut(ref, "/")
	want, err := hex.DecodeString(sum)
	if err := errors.Join(err, checkID("root", root)); err != nil || len(want) != sha256.Size {
		return nil, fmt.Errorf("reading blob %.200q: it is no reference to one", ref)
	}
	store, err := l.blobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading blob %s: %w", ref, err)
	}
	object, err := store.Get(ctx, ref)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fmt.Errorf("reading blob %s: %w", ref, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("reading blob %s: %w", ref, l.broker.Explain(err))
	}
	defer object.Close()
	data, err := io.ReadAll(io.LimitReader(object, MaxBlob+1))
	if err != nil {
		return nil, fmt.Errorf("reading blob %s: %w", ref, err)
	}
	if got := sha256.Sum256(data); !bytes.Equal(got[:], want) {
		return nil, fmt.Errorf("reading blob %s: its content is not what was stored: the broker's files are damaged", ref)
	}
	return data, nil
}

// Blobs returns the references to all blobs of a tree. It looks at the names of all
// that there are.
func (l *Log) Blobs(ctx context.Context, root string) ([]string, error) {
	if err := checkID("root", root); err != nil {
		return nil, fmt.Errorf("listing blobs: %w", err)
	}
	store, err := l.blobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the blobs of tree %s: %w", root, err)
	}
	all, err := store.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, fmt.Errorf("listing the blobs of tree %s: %w", root, l.broker.Explain(err))
	}
	var refs []string
	for _, object := range all {
		if strings.HasPrefix(object.Name, root+"/") {
			refs = append(refs, object.Name)
		}
	}
	return refs, nil
}

// RemoveBlobs removes all blobs of a tree. It looks at the names of all that
// there are.
func (l *Log) RemoveBlobs(ctx context.Context, root string) error {
	if err := checkID("root", root); err != nil {
		return fmt.Errorf("removing blobs: %w", err)
	}
	if err := l.removeBlobs(ctx, root); err != nil {
		return fmt.Errorf("removing the blobs of tree %s: %w", root, l.broker.Explain(err))
	}
	return nil
}

func (l *Log) removeBlobs(ctx context.Context, root string) error {
	store, err := l.blobs(ctx)
	if err != nil {
		return err
	}
	all, err := store.List(ctx, jetstream.ListObjectsShowDeleted())
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := l.broker.JetStream().Stream(ctx, "OBJ_"+broker.Blobs)
	if err != nil {
		return err
	}
	for _, object := range all {
		if !strings.HasPrefix(object.Name, root+"/") {
			continue
		}
		if !object.Deleted {
			// A server that lags lists what is gone.
			if err := store.Delete(ctx, object.Name); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
				return err
			}
		}
		// What is deleted leaves a message that says so, for ever.
		name := base64.URLEncoding.EncodeToString([]byte(object.Name))
		if err := s.Purge(ctx, jetstream.WithPurgeSubject("$O."+broker.Blobs+".M."+name)); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) blobs(ctx context.Context) (jetstream.ObjectStore, error) {
	if err := l.running(ctx); err != nil {
		return nil, err
	}
	store, err := l.broker.JetStream().ObjectStore(ctx, broker.Blobs)
	if err != nil {
		return nil, l.broker.Explain(err)
	}
	return store, nil
}
