package eventlog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dfaf701a/nestor/internal/broker"
)

// blobStream is where the object store keeps what it has: the parts of each object, and
// what it says of it.
const blobStream = "OBJ_" + broker.Blobs

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
	sum := sha256.Sum256(data)
	ref = root + "/" + hex.EncodeToString(sum[:])
	err = l.withBlobs(ctx, func(ctx context.Context, store jetstream.ObjectStore) error {
		if info, err := store.GetInfo(ctx, ref); err == nil && info.Size == uint64(len(data)) {
			return nil
		}
		_, err := store.Put(ctx, jetstream.ObjectMeta{Name: ref}, bytes.NewReader(data))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("storing a blob: %w", err)
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
	var data []byte
	found := true
	err = l.withBlobs(ctx, func(ctx context.Context, store jetstream.ObjectStore) (err error) {
		data, err = l.readBlob(ctx, store, ref)
		if found = !errors.Is(err, jetstream.ErrObjectNotFound); !found {
			return nil
		}
		return err
	})
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading blob %s: %w", ref, err)
	}
	if got := sha256.Sum256(data); !bytes.Equal(got[:], want) {
		return nil, fmt.Errorf("reading blob %s: its content is not what was stored: the broker's files are damaged", ref)
	}
	return data, nil
}

// readBlob asks for the parts of a blob one by one, and returns those that there are, in
// order. The store's own way of reading has a consumer made for each, and leaves a
// goroutine behind for ever if that takes too long (nats.go 1.55.0).
func (l *Log) readBlob(ctx context.Context, store jetstream.ObjectStore, ref string) (data []byte, err error) {
	s, err := l.broker.JetStream().Stream(ctx, blobStream)
	if err != nil {
		return nil, err
	}
	for {
		info, err := store.GetInfo(ctx, ref)
		if err != nil {
			return nil, err
		}
		data = make([]byte, 0, min(info.Size, MaxBlob))
		seq := uint64(1)
		for range info.Chunks {
			part, err := s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject("$O."+broker.Blobs+".C."+info.NUID))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				break
			}
			if err != nil {
				return nil, err
			}
			if len(data)+len(part.Data) > MaxBlob {
				return data, nil // which it is not: that is seen by its hash
			}
			data, seq = append(data, part.Data...), part.Sequence+1
		}
		if uint64(len(data)) == info.Size {
			return data, nil
		}
		if again, err := store.GetInfo(ctx, ref); err != nil || again.NUID == info.NUID {
			return data, err
		}
		// It was stored anew meanwhile.
	}
}

// Blobs returns the references to all blobs of a tree. It looks at the names of all
// that there are.
func (l *Log) Blobs(ctx context.Context, root string) ([]string, error) {
	if err := checkID("root", root); err != nil {
		return nil, fmt.Errorf("listing blobs: %w", err)
	}
	var refs []string
	err := l.withBlobs(ctx, func(ctx context.Context, store jetstream.ObjectStore) error {
		all, err := store.List(ctx)
		if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
			return err
		}
		refs = nil
		for _, object := range all {
			if strings.HasPrefix(object.Name, root+"/") {
				refs = append(refs, object.Name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the blobs of tree %s: %w", root, err)
	}
	return refs, nil
}

// RemoveBlobs removes all blobs of a tree. It looks at the names of all that
// there are.
func (l *Log) RemoveBlobs(ctx context.Context, root string) error {
	if err := checkID("root", root); err != nil {
		return fmt.Errorf("removing blobs: %w", err)
	}
	err := l.withBlobs(ctx, func(ctx context.Context, store jetstream.ObjectStore) error { return l.removeBlobs(ctx, store, root) })
	if err != nil {
		return fmt.Errorf("removing the blobs of tree %s: %w", root, err)
	}
	return nil
}

func (l *Log) removeBlobs(ctx context.Context, store jetstream.ObjectStore, root string) error {
	all, err := store.List(ctx, jetstream.ListObjectsShowDeleted())
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := l.broker.JetStream().Stream(ctx, blobStream)
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

// blobTimeout is how long a server is waited for that does not store, find or list
// blobs.
const blobTimeout = 2 * time.Minute

// withBlobs does something with where the blobs are, until it is done or it is no use
// to try it again.
func (l *Log) withBlobs(ctx context.Context, do func(context.Context, jetstream.ObjectStore) error) error {
	if err := l.running(ctx); err != nil {
		return err
	}
	trying, stop := context.WithTimeout(ctx, blobTimeout)
	defer stop()
	var why error
	err := l.persistFor(trying, blobTimeout, func(ctx context.Context) error {
		var store jetstream.ObjectStore
		if store, why = l.broker.JetStream().ObjectStore(ctx, broker.Blobs); why == nil {
			why = do(ctx, store)
		}
		return why
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("tried for %v: %w", blobTimeout, why)
	}
	return err
}
