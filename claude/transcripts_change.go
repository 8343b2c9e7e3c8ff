package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Rename gives a session a title. The error is [ErrSessionNotFound] if there
// is no such session, and [ErrInvalidSessionID] if id is not a UUID; so it is
// with all methods that change a session.
func (t Transcripts) Rename(ctx context.Context, id, dir, title string) error {
	title = strings.TrimSpace(title)
	if title == "" {
		return errors.New("renaming a session: the title is empty")
	}
	if err := t.annotate(ctx, id, dir, "custom-title", "customTitle", title); err != nil {
		return fmt.Errorf("renaming a session: %w", err)
	}
	return nil
}

// Tag gives a session a tag in place of the one it has; an empty one removes
// it. Characters that cannot be seen are dropped, and a tag of nothing else is
// an error.
func (t Transcripts) Tag(ctx context.Context, id, dir, tag string) error {
	if tag != "" {
		if tag = strings.TrimSpace(visible(tag)); tag == "" {
			return errors.New("tagging a session: the tag has nothing that can be seen")
		}
	}
	if err := t.annotate(ctx, id, dir, "tag", "tag", tag); err != nil {
		return fmt.Errorf("tagging a session: %w", err)
	}
	return nil
}

// annotate appends an entry with one field to a session.
func (t Transcripts) annotate(ctx context.Context, id, dir, kind, field, value string) error {
	var e jsonObject
	e.setString("type", kind)
	e.setString(field, value)
	e.setString("sessionId", id)
	if t.Store != nil {
		key, _, err := t.storeSession(ctx, id, dir)
		if err != nil {
			return err
		}
		stampEntry(&e, time.Now())
		return t.Store.Append(ctx, key, []json.RawMessage{e.bytes()})
	}
	return t.withSession(ctx, id, dir, func(p *projectsFolder, copies []sessionFile) error {
		for _, s := range copies {
			done, err := p.appendLine(s.main(), e.bytes())
			if done || err != nil {
				return err
			}
		}
		return notFound(id, "files that were there a moment ago")
	})
}

// stampEntry makes an entry tellable from others in a store.
func stampEntry(e *jsonObject, now time.Time) {
	e.setString("uuid", newTranscriptID())
	e.setString("timestamp", transcriptTime(now))
}

// appendLine adds a line to a transcript. It never creates one: it reports
// false if there is none, or an empty one.
func (p *projectsFolder) appendLine(name string, line []byte) (bool, error) {
	f, err := openRegular(p.root, name, os.O_RDWR|os.O_APPEND)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false, err
	}
	if err := writeLines(f, info.Size(), line); err != nil {
		return false, err
	}
	return true, f.Close()
}

// writeLines appends data to f, which is size bytes long, in one write. If the
// last line has no end, because its writer died, it ends it first.
func writeLines(f *os.File, size int64, data []byte) error {
	if !bytes.HasSuffix(data, []byte("\n")) {
		data = append(data, '\n')
	}
	if size > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], size-1); err != nil && err != io.EOF {
			return err
		}
		if last[0] != '\n' {
			data = append([]byte("\n"), data...)
		}
	}
	_, err := f.Write(data) // goes on after short writes
	return err
}

// Delete removes a session for good: every copy, with its subagents. In a
// store that is no [SessionDeleter] it does nothing.
func (t Transcripts) Delete(ctx context.Context, id, dir string) error {
	if t.Store != nil {
		if err := checkSessionID(id); err != nil {
			return fmt.Errorf("deleting a session: %w", err)
		}
		d, ok := t.Store.(SessionDeleter)
		if !ok {
			return nil
		}
		err := d.DeleteTranscript(ctx, storeKey(id, dir))
		if err != nil && !errors.Is(err, ErrStoreUnsupported) {
			return fmt.Errorf("deleting session %s: %w", id, err)
		}
		return nil
	}
	err := t.withSession(ctx, id, dir, func(p *projectsFolder, copies []sessionFile) error {
		var failed error
		for _, s := range copies {
			err := p.root.Remove(s.main())
			if err == nil {
				err = p.root.RemoveAll(s.folder())
			}
			failed = errors.Join(failed, err)
		}
		return failed
	})
	if err != nil {
		return fmt.Errorf("deleting a session: %w", err)
	}
	return nil
}

// visible puts s into its compatible composed form and drops characters that
// cannot be seen, until nothing changes: composing may produce new ones.
func visible(s string) string {
	for range 10 {
		before := s
		s = strings.Map(func(r rune) rune {
			// Format, private and unassigned characters. Go knows no table of
			// the last; what is in no other category is unassigned.
			if unicode.In(r, unicode.Cf, unicode.Co) || !unicode.In(r, unicode.L, unicode.M, unicode.N,
				unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cs) {
				return -1
			}
			return r
		}, norm.NFKC.String(s))
		if s == before {
			break
		}
	}
	return s
}
