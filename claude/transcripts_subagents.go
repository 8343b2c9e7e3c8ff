package claude

import (
	"cmp"
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

// subagentPaths returns the subpaths of a session's subagents.
func (t Transcripts) subagentPaths(ctx context.Context, id, dir string) (paths []string, err error) {
	if !validSessionID(id) {
		return nil, nil
	}
	if t.Store != nil {
		paths, err = storeSubkeys(ctx, t.Store, storeKey(id, dir))
		if err != nil {
			return nil, fmt.Errorf("listing subagents of %s: %w", id, err)
		}
		return subagentsOf(paths), nil
	}
	err = t.withSession(ctx, id, dir, func(p *projectsFolder, copies []sessionFile) error {
		paths, _ = p.subagentFiles(copies)
		return nil
	})
	return subagentsOf(paths), absent(err)
}

// subagentsOf returns those paths that are of subagents, the shallow ones
// first.
func subagentsOf(paths []string) []string {
	paths = slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		_, ok := subagentID(p)
		return !ok
	})
	slices.SortFunc(paths, func(a, b string) int {
		return cmp.Or(strings.Count(a, "/")-strings.Count(b, "/"), strings.Compare(a, b))
	})
	return paths
}

// pathOfSubagent returns the shallowest path of one subagent.
func pathOfSubagent(paths []string, agent string) (string, bool) {
	for _, p := range subagentsOf(paths) {
		if id, _ := subagentID(p); id == agent {
			return p, true
		}
	}
	return "", false
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

// subagentLines reads the transcript of one subagent, and where it came from.
func (t Transcripts) subagentLines(ctx context.Context, id, agent, dir string) (lines []*transcriptLine, origin agentOrigin, err error) {
	if t.Store != nil {
		return t.storeSubagent(ctx, id, agent, dir)
	}
	err = t.withSession(ctx, id, dir, func(p *projectsFolder, copies []sessionFile) error {
		paths, s := p.subagentFiles(copies)
		subpath, ok := pathOfSubagent(paths, agent)
		if !ok {
			return nil
		}
		name := path.Join(s.folder(), subpath)
		p.sidecar(name+".meta.json", &origin)
		lines, err = p.transcript(ctx, name+".jsonl")
		if err != nil {
			return fmt.Errorf("reading subagent %s of %s: %w", agent, id, err)
		}
		return nil
	})
	return lines, origin, err
}

// storeSubagent is subagentLines in a store. One that cannot list subagents
// may still have those that the session itself started.
func (t Transcripts) storeSubagent(ctx context.Context, id, agent, dir string) (lines []*transcriptLine, origin agentOrigin, err error) {
	paths, err := t.subagentPaths(ctx, id, dir)
	if errors.Is(err, ErrStoreUnsupported) {
		paths, err = []string{"subagents/agent-" + agent}, nil
	}
	subpath, ok := pathOfSubagent(paths, agent)
	if !ok || err != nil {
		return nil, origin, err
	}
	key := storeKey(id, dir)
	key.Subpath = subpath
	entries, err := t.Store.Load(ctx, key)
	if err != nil {
		return nil, origin, fmt.Errorf("loading subagent %s of %s: %w", agent, id, err)
	}
	entries, meta := splitMetadata(entries)
	unmarshalLoosely(meta, &origin)
	return parseEntries(entries), origin, nil
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
