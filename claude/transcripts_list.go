package claude

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// ListOptions narrows a listing. The zero value lists everything.
type ListOptions struct {
	Dir              string // see [Transcripts]
	NoWorktrees      bool   // leave out the other worktrees of Dir's repository
	HideProgrammatic bool   // leave out sessions that a program drove, such as an SDK
	Limit            int    // at most so many; zero means all
	Offset           int    // skip so many first
}

// List returns sessions, the last modified first. On disk it reads only the
// first and last 64 KiB of each. A transcript that is broken, empty or a
// subagent's is left out, and so is a session that went on in another. One
// that a store fails to load is listed with its ID and time alone. Without a
// [SessionLister] or [SummaryLister] the error is [ErrStoreUnsupported].
func (t Transcripts) List(ctx context.Context, opts ListOptions) ([]SessionInfo, error) {
	if t.Store != nil {
		return t.listStore(ctx, opts)
	}
	p, err := t.openProjects()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer p.root.Close()
	folders, err := p.folders(ctx, opts.Dir, !opts.NoWorktrees)
	if err != nil {
		return nil, err
	}
	var files []sessionFile
	for _, f := range folders {
		files = append(files, p.sessions(f)...)
	}
	slices.SortFunc(files, func(a, b sessionFile) int {
		return newestFirst(a.modified, b.modified, a.id, b.id)
	})
	seen := make(map[string]bool)
	files = slices.DeleteFunc(files, func(s sessionFile) bool {
		again := seen[s.id]
		seen[s.id] = true
		return again
	})
	fileID := func(s sessionFile) string { return s.id }
	return collect(ctx, opts, files, fileID, func(s sessionFile) listRow {
		d, err := p.digest(s)
		if err != nil || s.otherDir(d.Cwd) {
			return listRow{id: s.id}
		}
		row := newListRow(&d, s.id, s.dir, s.modified, opts)
		row.info.Size = s.size
		row.info.Archived = p.archived(s, &d)
		return row
	})
}

func newestFirst(a, b time.Time, idA, idB string) int {
	return cmp.Or(b.Compare(a), strings.Compare(idB, idA))
}

// otherDir tells whether cwd is another directory that only shares the key of
// the one asked for, as /a-b does with /a/b.
func (s sessionFile) otherDir(cwd string) bool {
	if s.dir == "" || cwd == "" {
		return false
	}
	cwd = canonicalDir(cwd)
	return cwd != s.dir && pathKey(cwd) == pathKey(s.dir)
}

// listRow is a session that a listing may show.
type listRow struct {
	id          string
	info        SessionInfo
	shown       bool
	continuedIn string
}

func newListRow(d *sessionDigest, id, dir string, modified time.Time, opts ListOptions) listRow {
	row := listRow{id: id, continuedIn: d.ContinuedIn}
	row.info, row.shown = d.info(id, dir, modified)
	if opts.HideProgrammatic && d.programmatic() {
		row.shown = false
	}
	return row
}

// maxListLoads bounds how many sessions are read at once.
const maxListLoads = 16

// collect loads sessions in their order, several at once, until the page that
// opts ask for is full.
func collect[T any](ctx context.Context, opts ListOptions, sessions []T, id func(T) string, load func(T) listRow) ([]SessionInfo, error) {
	exists := make(map[string]bool)
	for _, s := range sessions {
		exists[id(s)] = true
	}
	enough := len(sessions)
	if opts.Limit > 0 {
		enough = min(max(opts.Offset, 0), enough) + min(opts.Limit, enough)
	}
	next := make(map[string]string) // where a hidden session went on
	var shown []SessionInfo
	for len(sessions) > 0 && len(shown) < enough {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		rows := make([]listRow, min(maxListLoads, len(sessions), enough-len(shown)))
		var wg sync.WaitGroup
		for i := range rows {
			wg.Go(func() { rows[i] = load(sessions[i]) })
		}
		wg.Wait()
		sessions = sessions[len(rows):]
		for _, row := range rows {
			if exists[row.continuedIn] && !leadsTo(next, row.continuedIn, row.id) {
				next[row.id] = row.continuedIn
			} else if row.shown {
				shown = append(shown, row.info)
			}
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return page(shown, opts.Offset, opts.Limit), nil
}

// leadsTo tells whether the way from one session reaches another. Of sessions
// that continue in a circle one must stay visible.
func leadsTo(next map[string]string, from, to string) bool {
	for from != to {
		var ok bool
		if from, ok = next[from]; !ok {
			return false
		}
	}
	return true
}

// Info returns what List would say about one session, if it is not a
// subagent's and there is something to say; otherwise the error is
// [ErrSessionNotFound].
func (t Transcripts) Info(ctx context.Context, id, dir string) (SessionInfo, error) {
	if t.Store != nil {
		return t.storeInfo(ctx, id, dir)
	}
	var info SessionInfo
	err := t.withSession(ctx, id, dir, func(p *projectsFolder, copies []sessionFile) error {
		var failed error
		for _, s := range copies {
			d, err := p.digest(s)
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			row := newListRow(&d, id, s.dir, s.modified, ListOptions{})
			if row.shown {
				info = row.info
				info.Size = s.size
				info.Archived = p.archived(s, &d)
				return nil
			}
		}
		if failed == nil {
			failed = fmt.Errorf("%w: %s (its transcript has nothing to show)", ErrSessionNotFound, id)
		}
		return failed
	})
	return info, err
}

// digest reads both ends of a transcript. Titles come from the tail, then from
// the file beside the transcript, then from the head; tag, last prompt and
// summary from the tail alone, for what the head says of them may be outdated.
func (p *projectsFolder) digest(s sessionFile) (sessionDigest, error) {
	var d sessionDigest
	f, err := openRegular(p.root, s.main(), os.O_RDONLY)
	if err != nil {
		return d, err
	}
	defer f.Close()
	head := make([]byte, min(s.size, window))
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return d, err
	}
	head = head[:n]
	d.addLines(head, s.size <= window)

	headTitle := d.CustomTitle
	if s.size > window {
		d.CustomTitle, d.Tag, d.LastPrompt, d.SummaryHint = "", "", "", ""
		// One byte more than the window tells whether it starts with a line.
		tail := make([]byte, window+1)
		n, err := f.ReadAt(tail, s.size-int64(len(tail)))
		if err != nil && err != io.EOF {
			return d, err
		}
		if _, rest, ok := bytes.Cut(tail[:n], []byte("\n")); ok {
			d.addLines(rest, true)
		}
	}
	// In a small file head and tail are the same.
	if d.CustomTitle == "" {
		var sidecar struct {
			CustomTitle string `json:"customTitle"`
		}
		p.sidecar(path.Join(s.folder(), "custom-title.json"), &sidecar)
		d.CustomTitle = firstNonEmpty(strings.TrimSpace(sidecar.CustomTitle), headTitle)
	}
	return d, nil
}

// addLines adds the entries of data. Unless it is complete, its last line
// counts as far as it goes.
func (d *sessionDigest) addLines(data []byte, complete bool) {
	for line := range bytes.Lines(data) {
		l, ok := parseTranscriptLine(line)
		if !ok && !complete && !bytes.HasSuffix(line, []byte("\n")) {
			l, ok = parseCutLine(line)
		}
		if ok {
			d.add(l)
		}
	}
}
