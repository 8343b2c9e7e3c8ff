package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// listStore is List in a store. It uses the store's summaries where they are
// as new as the sessions, and loads the others.
func (t Transcripts) listStore(ctx context.Context, opts ListOptions) ([]SessionInfo, error) {
	project := ProjectKey(opts.Dir)
	summaries, err := storeSummaries(ctx, t.Store, project)
	hasSummaries := !errors.Is(err, ErrStoreUnsupported)
	if err != nil && hasSummaries {
		return nil, fmt.Errorf("listing sessions: %w", err)
	}
	stamps, err := storeSessions(ctx, t.Store, project)
	if errors.Is(err, ErrStoreUnsupported) && hasSummaries {
		err = nil
		for _, s := range summaries {
			stamps = append(stamps, SessionStamp{Session: s.Session, Modified: s.Modified})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listing sessions: %w", err)
	}
	known := make(map[string]Summary)
	for _, s := range summaries {
		known[s.Session] = s
	}
	dir := canonicalDir(opts.Dir)
	stamps = slices.SortedFunc(slices.Values(stamps), func(a, b SessionStamp) int {
		return newestFirst(a.Modified, b.Modified, a.Session, b.Session)
	})
	stampID := func(s SessionStamp) string { return s.Session }
	return collect(ctx, opts, stamps, stampID, func(s SessionStamp) listRow {
		var d sessionDigest
		if sum, ok := known[s.Session]; !ok || sum.Modified.Before(s.Modified) || !unmarshalLoosely(sum.Data, &d) {
			entries, err := recovered(func() ([]json.RawMessage, error) {
				return t.Store.Load(ctx, SessionKey{Project: project, Session: s.Session})
			})
			if err != nil {
				return listRow{id: s.Session, info: SessionInfo{ID: s.Session, Dir: dir, Modified: s.Modified}, shown: true}
			}
			d = digestEntries(entries)
		}
		return newListRow(&d, s.Session, dir, s.Modified, opts)
	})
}

func digestEntries(entries []json.RawMessage) sessionDigest {
	var d sessionDigest
	for _, l := range parseEntries(entries) {
		d.add(l)
	}
	return d
}

// storeInfo is Info in a store. The session is as old as the store says, or as
// its last entry if the store does not say.
func (t Transcripts) storeInfo(ctx context.Context, id, dir string) (SessionInfo, error) {
	key, entries, err := t.storeSession(ctx, id, dir)
	if err != nil {
		return SessionInfo{}, err
	}
	d := digestEntries(entries)
	var modified time.Time
	if d.LastTimestamp != 0 {
		modified = time.UnixMilli(d.LastTimestamp)
	}
	stamps, err := storeSessions(ctx, t.Store, key.Project)
	if err != nil && !errors.Is(err, ErrStoreUnsupported) {
		return SessionInfo{}, err
	}
	for _, s := range stamps {
		if s.Session == id {
			modified = s.Modified
		}
	}
	info, ok := d.info(id, canonicalDir(dir), modified)
	if !ok {
		return SessionInfo{}, fmt.Errorf("%w: %s (its transcript has nothing to show)", ErrSessionNotFound, id)
	}
	return info, nil
}

// storeSession loads a session that must be there.
func (t Transcripts) storeSession(ctx context.Context, id, dir string) (SessionKey, []json.RawMessage, error) {
	key := storeKey(id, dir)
	if err := checkSessionID(id); err != nil {
		return key, nil, err
	}
	entries, err := t.Store.Load(ctx, key)
	if err != nil {
		return key, nil, fmt.Errorf("loading session %s: %w", id, err)
	}
	if len(entries) == 0 {
		return key, nil, notFound(id, "project "+key.Project+" of the store")
	}
	return key, entries, nil
}

// storeSessions, storeSummaries and storeSubkeys return an error that is
// ErrStoreUnsupported if the store cannot tell.
func storeSessions(ctx context.Context, s Store, project string) ([]SessionStamp, error) {
	l, ok := s.(SessionLister)
	if !ok {
		return nil, ErrStoreUnsupported
	}
	return l.ListSessions(ctx, project)
}

func storeSummaries(ctx context.Context, s Store, project string) ([]Summary, error) {
	l, ok := s.(SummaryLister)
	if !ok {
		return nil, ErrStoreUnsupported
	}
	return l.ListSummaries(ctx, project)
}

func storeSubkeys(ctx context.Context, s Store, key SessionKey) ([]string, error) {
	l, ok := s.(SubkeyLister)
	if !ok {
		return nil, ErrStoreUnsupported
	}
	return l.ListSubkeys(ctx, key.Project, key.Session)
}
