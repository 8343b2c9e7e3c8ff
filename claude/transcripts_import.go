package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
)

// ImportOptions says how to copy a session into a store. The zero value copies
// all of it.
type ImportOptions struct {
	NoSubagents bool
	Batch       int // most entries in one Append; zero or less means 500
}

// Import copies a session from disk into a store, under the keys that
// mirroring it would have used. It reads the disk also if t has a store.
// Lines that are not JSON objects are left out. If it fails, part of the
// session may have been copied.
func (t Transcripts) Import(ctx context.Context, id, dir string, to Store, opts ImportOptions) error {
	if to == nil {
		return errors.New("importing a session: no store to import to")
	}
	if opts.Batch <= 0 {
		opts.Batch = mirrorMaxEntries
	}
	err := t.withSession(ctx, id, dir, func(p *projectsFolder, copies []sessionFile) error {
		s := copies[0]
		key := SessionKey{Project: s.name, Session: id}
		if err := p.importFile(ctx, s.main(), key, nil, to, opts.Batch); err != nil {
			return err
		}
		if opts.NoSubagents {
			return nil
		}
		subpaths, s := p.subagentFiles(copies)
		for _, subpath := range subpaths {
			key.Subpath = subpath
			name := path.Join(s.folder(), subpath)
			var first []json.RawMessage
			if meta, ok := p.metadataEntry(name + ".meta.json"); ok {
				first = append(first, meta)
			}
			if err := p.importFile(ctx, name+".jsonl", key, first, to, opts.Batch); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("importing a session: %w", err)
	}
	return nil
}

// importFile appends first and then the entries of a file.
func (p *projectsFolder) importFile(ctx context.Context, name string, key SessionKey, first []json.RawMessage, to Store, batch int) error {
	lines, err := p.transcript(ctx, name)
	if err != nil {
		return err
	}
	entries := first
	for _, l := range lines {
		entries = append(entries, l.raw)
	}
	for some := range slices.Chunk(entries, batch) {
		if err := to.Append(ctx, key, some); err != nil {
			return fmt.Errorf("appending to %v: %w", key, err)
		}
	}
	return nil
}

// metadataEntry makes an entry of the file that says where a subagent came
// from.
func (p *projectsFolder) metadataEntry(name string) (json.RawMessage, bool) {
	data, ok := p.sidecarBytes(name)
	if !ok {
		return nil, false
	}
	e, ok := parseObject(data)
	if !ok {
		return nil, false
	}
	e.setString("type", agentMetadata)
	e.first("type")
	return e.bytes(), true
}
