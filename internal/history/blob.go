package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrNoBlob says that there is no such blob.
var ErrNoBlob = errors.New("no such blob")

// KeepBlob keeps data that an event of a tree refers to. What is kept already
// stays as it is.
func (h *History) KeepBlob(ctx context.Context, root, ref string, data []byte) error {
	_, err := h.write.ExecContext(ctx, "INSERT INTO blobs (ref, root, data) VALUES (?, ?, ?) ON CONFLICT (ref) DO NOTHING", clean(ref), clean(root), data)
	if err != nil {
		return fmt.Errorf("keeping blob %s in %w", ref, h.explain(err))
	}
	return nil
}

// Blob returns what is kept under a reference, or ErrNoBlob.
func (h *History) Blob(ctx context.Context, ref string) (data []byte, err error) {
	err = h.read.QueryRowContext(ctx, "SELECT data FROM blobs WHERE ref = ?", clean(ref)).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("blob %.200q: %w", ref, ErrNoBlob)
	}
	if err != nil {
		return nil, fmt.Errorf("reading blob %.200q of %w", ref, h.explain(err))
	}
	return data, nil
}
