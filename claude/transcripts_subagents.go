package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// agentMetadata is the type of the entry that says, in a store, where a
// subagent came from. On disk a file beside the transcript does.
const agentMetadata = "agent_metadata"

// agentOrigin is what is read of it.
type agentOrigin struct {
	ToolUseID     string `json:"toolUseId"`
	ParentAgentID string `json:"parentAgentId"`
}

// Subagents returns the ids of the subagents that a session started, sorted.
// A session that is not there has none. Without a [SubkeyLister] the error is
// [ErrStoreUnsupported].
func (t Transcripts) Subagents(ctx context.Context, id, dir string) ([]string, error) {
	paths, err := t.subagentPaths(ctx, id, dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, p := range paths {
		agent, _ := subagentID(p)
		ids = append(ids, agent)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// SubagentMessages returns the conversation of one subagent. One that is not
// there has none.
func (t Transcripts) SubagentMessages(ctx context.Context, id, agent string, opts MessageOptions) ([]TranscriptMessage, error) {
	if agent == "" {
		return nil, nil
	}
	lines, origin, err := t.subagentLines(ctx, id, agent, opts.Dir)
	if err != nil {
		return nil, absent(err)
	}
	c := newChain(lines)
	var messages []TranscriptMessage
	for _, i := range c.withParallel(c.walk(c.lastSpoken())) {
		if l := c.lines[i]; l.spoken() || l.Type == "system" && opts.System {
			m := newTranscriptMessage(l, id)
			m.ParentToolUseID, m.ParentAgentID = origin.ToolUseID, origin.ParentAgentID
			messages = append(messages, m)
		}
	}
	return page(messages, opts.Offset, opts.Limit), nil
}

// subagentID returns the id in a subpath such as "subagents/agent-x", which
// may lie deeper.
func subagentID(subpath string) (string, bool) {
	if !strings.HasPrefix(subpath, "subagents/") {
		return "", false
	}
	id, ok := strings.CutPrefix(path.Base(subpath), "agent-")
	return id, ok && id != ""
}

// subagentPaths returns the subpaths of a session's subagents, the shallow
// ones first.
func (t Transcripts) subagentPaths(ctx context.Context, id, dir string) (paths []string, err error) {
	if !validSessionID(id) {
		return nil, nil
	}
	if t.Store != nil {
		paths, err = storeSubkeys(ctx, t.Store, storeKey(id, dir))
		if err != nil {
			return nil, fmt.Errorf("listing subagents of %s: %w", id, err)
		}
	} else {
		err = t.withSession(ctx, id, dir, func(p *projectsFolder, copies []sessionFile) error {
			paths, _ = p.subagentFiles(copies)
			return nil
		})
		if err != nil {
			return nil, absent(err)
		}
	}
	paths = slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		_, ok := subagentID(p)
		return !ok
	})
	slices.SortFunc(paths, shallowFirst)
	return paths, nil
}

// shallowFirst orders paths by depth and then by name.
func shallowFirst(a, b string) int {
	if d := strings.Count(a, "/") - strings.Count(b, "/"); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// subagentFiles returns the subpaths of the transcripts under the first copy
// of a session that has any, and that copy. It follows no links.
func (p *projectsFolder) subagentFiles(copies []sessionFile) ([]string, sessionFile) {
	for _, s := range copies {
		var found []string
		root := path.Join(s.folder(), "subagents")
		// What cannot be read is as good as not there.
		_ = fs.WalkDir(p.root.FS(), root, func(name string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			if subpath, ok := strings.CutSuffix(name, ".jsonl"); ok && e.Type().IsRegular() {
				found = append(found, strings.TrimPrefix(subpath, s.folder()+"/"))
			}
			return nil
		})
		if len(found) > 0 {
			return found, s
		}
	}
	return nil, sessionFile{}
}

// subagentLines reads the transcript of one subagent.
func (t Transcripts) subagentLines(ctx context.Context, id, agent, dir string) ([]*transcriptLine, agentOrigin, error) {
	paths, err := t.subagentPaths(ctx, id, dir)
	if errors.Is(err, ErrStoreUnsupported) {
		paths, err = []string{"subagents/agent-" + agent}, nil
	}
	if err != nil {
		return nil, agentOrigin{}, err
	}
	i := slices.IndexFunc(paths, func(p string) bool {
		a, _ := subagentID(p)
		return a == agent
	})
	if i < 0 {
		return nil, agentOrigin{}, nil
	}
	if t.Store != nil {
		key := storeKey(id, dir)
		key.Subpath = paths[i]
		entries, err := t.Store.Load(ctx, key)
		if err != nil {
			return nil, agentOrigin{}, fmt.Errorf("loading subagent %s of %s: %w", agent, id, err)
		}
		entries, meta := splitMetadata(entries)
		var origin agentOrigin
		unmarshalLoosely(meta, &origin)
		return parseEntries(entries), origin, nil
	}
	var lines []*transcriptLine
	var origin agentOrigin
	err = t.withSession(ctx, id, dir, func(p *projectsFolder, copies []sessionFile) error {
		_, s := p.subagentFiles(copies)
		name := path.Join(s.folder(), paths[i])
		p.sidecar(name+".meta.json", &origin)
		if lines, err = p.transcript(ctx, name+".jsonl"); err != nil {
			return fmt.Errorf("reading subagent %s of %s: %w", agent, id, err)
		}
		return nil
	})
	return lines, origin, err
}

// splitMetadata separates a subagent's entries from the last one that says
// where it came from, which is nil if there is none.
func splitMetadata(entries []json.RawMessage) (rest []json.RawMessage, meta json.RawMessage) {
	for _, e := range entries {
		if l, ok := parseTranscriptLine(e); ok && l.Type == agentMetadata {
			meta = l.raw
		} else {
			rest = append(rest, e)
		}
	}
	return rest, meta
}
