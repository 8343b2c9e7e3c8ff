package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"
)

// ForkOptions says how to fork a session. The zero value copies all of it.
type ForkOptions struct {
	Dir   string // see [Transcripts]
	UpTo  string // the uuid of the last message to copy; empty means all
	Title string // of the fork; empty means that of the session with " (fork)" added
}

// Fork copies a session into a new one, beside it, and returns the id of the
// copy. All its messages get new ids. What the CLI could undo in the session,
// it cannot undo in the fork. The error is [ErrMessageNotFound] if UpTo is not
// in the session.
func (t Transcripts) Fork(ctx context.Context, id string, opts ForkOptions) (string, error) {
	newID, err := t.fork(ctx, id, opts)
	if err != nil {
		return "", fmt.Errorf("forking a session: %w", err)
	}
	return newID, nil
}

func (t Transcripts) fork(ctx context.Context, id string, opts ForkOptions) (string, error) {
	f := fork{from: id, to: newTranscriptID(), now: time.Now(), stamp: t.Store != nil}
	if t.Store != nil {
		key, entries, err := t.storeSession(ctx, id, opts.Dir)
		if err != nil {
			return "", err
		}
		copied, err := f.copy(parseEntries(entries), opts)
		if err != nil {
			return "", err
		}
		key.Session = f.to
		return f.to, t.Store.Append(ctx, key, copied)
	}
	return f.to, t.withSession(ctx, id, opts.Dir, func(p *projectsFolder, copies []sessionFile) error {
		lines, err := p.transcript(ctx, copies[0].main())
		if err != nil {
			return err
		}
		copied, err := f.copy(lines, opts)
		if err != nil {
			return err
		}
		return p.create(path.Join(copies[0].name, f.to+".jsonl"), copied)
	})
}

// create writes a new transcript.
func (p *projectsFolder) create(name string, entries []json.RawMessage) error {
	f, err := p.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(joinLines(entries))
	if err := errors.Join(err, f.Close()); err != nil {
		p.root.Remove(name)
		return err
	}
	return nil
}

func joinLines(entries []json.RawMessage) []byte {
	var b bytes.Buffer
	for _, e := range entries {
		b.Write(e)
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// fork is one copying of a session.
type fork struct {
	from, to string
	now      time.Time
	stamp    bool              // give metadata entries an id and a time too
	ids      map[string]string // old uuid to new; for what is not copied, that of the nearest above, or ""
	parents  map[string]string // uuid of each source entry to its parent's
}

// copy returns the entries of the new session.
func (f *fork) copy(lines []*transcriptLine, opts ForkOptions) ([]json.RawMessage, error) {
	var source []*transcriptLine
	var digest sessionDigest
	for _, l := range lines {
		digest.add(l)
		if l.conversation() && !l.IsSidechain {
			source = append(source, l)
		}
	}
	source, dropKept, err := cutFork(source, opts.UpTo)
	if err != nil {
		return nil, err
	}
	f.ids, f.parents = make(map[string]string), make(map[string]string)
	last := -1
	for i, l := range source {
		f.parents[l.UUID] = l.ParentUUID
		if l.Type != "progress" {
			f.ids[l.UUID] = newTranscriptID()
			last = i
		}
	}
	if last < 0 {
		return nil, fmt.Errorf("session %s has no messages to fork", f.from)
	}
	var copied []json.RawMessage
	for i, l := range source {
		if l.Type != "progress" {
			copied = append(copied, f.message(l, i == last, dropKept == l))
		}
	}
	if e := f.replacements(lines); e != nil {
		copied = append(copied, e)
	}
	title := strings.TrimSpace(opts.Title)
	if title == "" {
		title = firstNonEmpty(digest.CustomTitle, digest.AITitle, digest.FirstPrompt, digest.Command, "Forked session") + " (fork)"
	}
	var e jsonObject
	e.setString("type", "custom-title")
	e.setString("customTitle", title)
	e.setString("sessionId", f.to)
	return append(copied, f.metadata(&e)), nil
}

// cutFork ends the source with the entry upTo. A compaction's boundary alone
// would leave a conversation without its summary, so a cut between the two
// goes before the boundary. A cut at the summary leaves out the messages that
// the compaction kept after it: it returns their boundary.
func cutFork(source []*transcriptLine, upTo string) (_ []*transcriptLine, dropKept *transcriptLine, _ error) {
	if upTo == "" {
		return source, nil, nil
	}
	boundary := -1 // the last one without a summary so far
	for i, l := range source {
		if l.Type == "system" && l.Subtype == "compact_boundary" {
			boundary = i
		}
		if l.UUID == upTo {
			switch {
			case boundary < 0:
			case l.IsCompact:
				dropKept = source[boundary]
			case !l.spoken():
				return source[:boundary], nil, nil
			}
			return source[:i+1], dropKept, nil
		}
		if l.spoken() {
			boundary = -1
		}
	}
	return nil, nil, fmt.Errorf("%w: %.80q", ErrMessageNotFound, upTo)
}

// message returns the copy of one entry.
func (f *fork) message(l *transcriptLine, last, dropKept bool) json.RawMessage {
	e, ok := parseObject(l.raw)
	if !ok {
		return l.raw // cannot be: it was parsed before
	}
	e.setString("uuid", f.ids[l.UUID])
	e.set("parentUuid", f.link(l.ParentUUID))
	var logical string
	if json.Unmarshal(e.get("logicalParentUuid"), &logical) == nil {
		e.set("logicalParentUuid", f.link(logical))
	}
	e.setString("sessionId", f.to)
	e.set("isSidechain", json.RawMessage("false"))
	if last {
		e.setString("timestamp", transcriptTime(f.now))
	}
	for _, stale := range []string{"teamName", "agentName", "slug", "sourceToolAssistantUUID"} {
		e.remove(stale)
	}
	if meta, ok := parseObject(e.get("compactMetadata")); ok {
		f.relinkKept(meta, dropKept)
		e.set("compactMetadata", meta.bytes())
	}
	var origin jsonObject
	origin.setString("sessionId", f.from)
	origin.setString("messageUuid", l.UUID)
	e.set("forkedFrom", origin.bytes())
	return e.bytes()
}

// link returns the new id of an entry, or of the nearest one above it that was
// copied, or null.
func (f *fork) link(uuid string) json.RawMessage {
	var passed []string
	for {
		id, known := f.ids[uuid]
		if known || uuid == "" {
			// Remembering the way keeps long rows of skipped entries cheap.
			for _, p := range passed {
				f.ids[p] = id
			}
			if id == "" {
				return json.RawMessage("null")
			}
			return jsonString(id)
		}
		f.ids[uuid] = "" // ends a circle
		passed = append(passed, uuid)
		uuid = f.parents[uuid]
	}
}

// relinkKept makes what a compaction says about the messages it kept true of
// the copies, or takes it out.
func (f *fork) relinkKept(meta *jsonObject, drop bool) {
	for _, name := range []string{"preservedMessages", "preservedSegment"} {
		kept, ok := parseObject(meta.get(name))
		if !ok {
			continue
		}
		if drop {
			meta.remove(name)
			continue
		}
		for _, field := range []string{"anchorUuid", "headUuid", "tailUuid"} {
			var uuid string
			if json.Unmarshal(kept.get(field), &uuid) == nil {
				kept.set(field, f.link(uuid))
			}
		}
		var uuids []string
		if json.Unmarshal(kept.get("uuids"), &uuids) == nil {
			ids := make([]string, 0, len(uuids))
			for _, uuid := range uuids {
				if id := f.ids[uuid]; id != "" {
					ids = append(ids, id)
				}
			}
			encoded, _ := json.Marshal(ids) // strings always encode
			kept.set("uuids", encoded)
		}
		meta.set(name, kept.bytes())
	}
}

// replacements returns one entry with all content replacements of the session,
// nil if there are none.
func (f *fork) replacements(lines []*transcriptLine) json.RawMessage {
	var all []json.RawMessage
	for _, l := range lines {
		var some []json.RawMessage
		if l.Type == "content-replacement" && l.SessionID == f.from && json.Unmarshal(l.Replacements, &some) == nil {
			all = append(all, some...)
		}
	}
	if len(all) == 0 {
		return nil
	}
	list, err := json.Marshal(all)
	if err != nil {
		return nil // cannot be: each was decoded just now
	}
	var e jsonObject
	e.setString("type", "content-replacement")
	e.setString("sessionId", f.to)
	e.set("replacements", list)
	return f.metadata(&e)
}

func (f *fork) metadata(e *jsonObject) json.RawMessage {
	if f.stamp {
		stampEntry(e, f.now)
	}
	return e.bytes()
}
