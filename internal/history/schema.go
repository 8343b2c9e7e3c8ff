package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
)

// schema has, for each version of the file, the statements that lead to it from
// the one before. Lines are added, never changed.
//
// It is SQL that Postgres has too, but for BLOB (BYTEA there), the INTEGER of
// events.position (BIGINT there; here it makes the position the row's own
// number), and the table of texts, which search.go alone uses. Times are
// microseconds since 1970 in UTC, zero for none; nothing is ordered by them.
var schema = [][]string{
	{
		`CREATE TABLE trees (
			root TEXT PRIMARY KEY,
			last BIGINT NOT NULL,               -- position of its last event
			archived BIGINT NOT NULL DEFAULT 0, -- up to where it may be gone from the stream
			forgotten INTEGER NOT NULL DEFAULT 0, -- the engine has no document of it
			purged BIGINT NOT NULL DEFAULT 0,   -- up to where it is gone from the stream
			settled INTEGER NOT NULL DEFAULT 0  -- nothing is left to do for it
		)`,
		`CREATE INDEX trees_settled ON trees (settled, root)`,

		`CREATE TABLE runs (
			id TEXT PRIMARY KEY,
			first BIGINT NOT NULL UNIQUE, -- position of the event that it was first seen in
			last BIGINT NOT NULL,         -- of its own last event
			events BIGINT NOT NULL,       -- its own, projected
			root TEXT NOT NULL,
			parent TEXT NOT NULL,
			depth INTEGER NOT NULL,
			agent TEXT NOT NULL,
			swarm TEXT NOT NULL,
			title TEXT NOT NULL,
			state TEXT NOT NULL,
			reason TEXT NOT NULL,
			attempt INTEGER NOT NULL,
			queued BIGINT NOT NULL,
			started BIGINT NOT NULL,
			ended BIGINT NOT NULL,
			cost DOUBLE PRECISION NOT NULL,
			input_tokens BIGINT NOT NULL,
			output_tokens BIGINT NOT NULL,
			cache_read_tokens BIGINT NOT NULL,
			cache_write_tokens BIGINT NOT NULL,
			summary TEXT NOT NULL,
			error_kind TEXT NOT NULL,
			error_message TEXT NOT NULL
		)`,
		`CREATE INDEX runs_root ON runs (root, first)`,
		`CREATE INDEX runs_parent ON runs (parent, first)`,
		`CREATE INDEX runs_state ON runs (state, first)`,
		`CREATE INDEX runs_agent ON runs (agent, first)`,

		`CREATE TABLE events (
			position INTEGER PRIMARY KEY,
			root TEXT NOT NULL,
			run TEXT NOT NULL,
			n BIGINT NOT NULL,
			type TEXT NOT NULL,
			time BIGINT NOT NULL,
			data BLOB NOT NULL
		)`,
		`CREATE INDEX events_root ON events (root, position)`,
		`CREATE INDEX events_run ON events (run, position)`,

		createTexts,
	},
	{
		`CREATE TABLE blobs (
			ref TEXT PRIMARY KEY, -- as events have it
			root TEXT NOT NULL,
			data BLOB NOT NULL
		)`,
	},
}

// What the table meta holds.
const (
	metaSchema    = "schema"    // version, the length of schema
	metaProjected = "projected" // position up to which the log is here
	metaState     = "state"     // stateOpen or stateClosed

	stateOpen, stateClosed = "open", "closed"
)

// migrate brings the file to the newest schema.
func (h *History) migrate(ctx context.Context) error {
	return h.change(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)"); err != nil {
			return err
		}
		version, err := getNumber(ctx, tx, metaSchema)
		if err != nil {
			return err
		}
		if version > uint64(len(schema)) {
			return fmt.Errorf("%w: its schema is version %d, and this one knows %d: use the nestor that wrote it, or a newer one", ErrNewer, version, len(schema))
		}
		if version == uint64(len(schema)) {
			return nil
		}
		for v, statements := range schema[version:] {
			for _, s := range statements {
				if _, err := tx.ExecContext(ctx, s); err != nil {
					return fmt.Errorf("migrating to version %d: %w", int(version)+v+1, err)
				}
			}
		}
		return setMeta(ctx, tx, metaSchema, strconv.Itoa(len(schema)))
	})
}

// querier is a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

const (
	selectMeta = "SELECT value FROM meta WHERE name = ?"
	putMeta    = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)

// getMeta returns a value, empty if there is none.
func getMeta(ctx context.Context, q querier, name string) (string, error) {
	var value string
	err := q.QueryRowContext(ctx, selectMeta, name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, err
}

// getNumber returns a value that is a number, zero if there is none.
func getNumber(ctx context.Context, q querier, name string) (uint64, error) {
	text, err := getMeta(ctx, q, name)
	if err != nil || text == "" {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%w: its %s is %.40q", ErrDamaged, name, text)
	}
	return n, nil
}

func setMeta(ctx context.Context, q querier, name, value string) error {
	_, err := q.ExecContext(ctx, putMeta, name, value)
	return err
}
