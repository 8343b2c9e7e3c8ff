package claudetest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// Scrub replaces what differs from one recording to the next, or tells of the
// machine: folders, ids, ports, times. Equal ids stay equal; ids that the host
// chose stay as they are.
func (t *Transcript) Scrub(cli *CLI) {
	var chosen strings.Builder
	for _, act := range t.Acts {
		fmt.Fprintln(&chosen, act)
	}
	s := &scrubber{chosen: chosen.String(), ids: map[string]string{}, counts: map[string]int{}}
	root := filepath.Dir(cli.Home)
	folders := strings.NewReplacer(
		cli.Dir, workDir, cli.Home, "$HOME", filepath.Join(root, "tmp"), "$TMP", root, "$ROOT",
		// The CLI names a project's folder after its path.
		projectFolder(cli.Dir), projectFolder(workDir), projectFolder(root), "-ROOT",
	)
	for i, l := range t.Lines {
		if l.JSON == nil {
			continue
		}
		text := s.byForm(folders.Replace(string(l.JSON)))
		for _, r := range volatile {
			text = r.pattern.ReplaceAllString(text, r.with)
		}
		t.Lines[i].JSON = json.RawMessage(text)
	}
	// Ids of tasks and agents are random words: they are known by their key.
	for i, l := range t.Lines {
		if l.JSON != nil {
			t.Lines[i].JSON = json.RawMessage(s.byKey(string(l.JSON)))
		}
	}
}

func projectFolder(dir string) string {
	return regexp.MustCompile(`[^a-zA-Z0-9]`).ReplaceAllString(dir, "-")
}

type scrubber struct {
	chosen string // what the host chose
	ids    map[string]string
	counts map[string]int
}

var (
	uuidPattern = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	apiPattern  = regexp.MustCompile(`\b(msg|toolu|req)_[0-9a-f]{20,22}\b`)
	wordPattern = regexp.MustCompile(`"(?:task_id|run_id|agent_id|agentId|backgroundTaskId)":"([A-Za-z0-9_-]+)"`)
)

// volatile is what is known by its form or its key and need not stay distinct.
var volatile = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "2026-01-01T00:00:00.000Z"},
	{regexp.MustCompile(`"([a-z_]*_ms|[a-zA-Z]*DurationMs|durationMs|mtime|elapsed_time_seconds|end_time|start_time)":[0-9.]+`), `"$1":1`},
	{regexp.MustCompile(`"(pid)":\d+`), `"$1":1`},
	{regexp.MustCompile(`(duration_ms>|duration_ms: )\d+`), "${1}1"},
	{regexp.MustCompile(`\b1[789]\d{11}\b`), "1"}, // milliseconds since 1970
	{regexp.MustCompile(`cc-socks/\d+\.sock`), "cc-socks/1.sock"},
	{regexp.MustCompile(`(plans/[a-z-]+?)-[a-z]+-[a-z]+\.md`), "$1.md"},
	// The CLI's own commands come with long descriptions: their prose is not a fact about the protocol.
	{regexp.MustCompile(`("description":"(?:[^"\\]|\\.){40})(?:[^"\\]|\\.)+"`), `$1…"`},
	{regexp.MustCompile(`(127\.0\.0\.1|localhost):\d+`), "$1:1"},
}

// byForm replaces the ids that are known by their form.
func (s *scrubber) byForm(text string) string {
	text = uuidPattern.ReplaceAllStringFunc(text, func(id string) string {
		return s.same(id, func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }, "uuid")
	})
	return apiPattern.ReplaceAllStringFunc(text, func(id string) string {
		kind, _, _ := strings.Cut(id, "_")
		return s.same(id, func(n int) string { return fmt.Sprintf("%s_%02d", kind, n) }, kind)
	})
}

// byKey replaces the ids that are known by their key, wherever they stand.
func (s *scrubber) byKey(text string) string {
	for _, m := range wordPattern.FindAllStringSubmatch(text, -1) {
		s.same(m[1], func(n int) string { return fmt.Sprintf("task-%d", n) }, "task")
	}
	for id, with := range s.ids {
		if strings.HasPrefix(with, "task-") {
			text = strings.ReplaceAll(text, id, with)
		}
	}
	return text
}

// same returns what stands for id, made by name the first time.
func (s *scrubber) same(id string, name func(n int) string, kind string) string {
	if strings.Contains(s.chosen, id) || strings.HasPrefix(id, "task-") {
		return id
	}
	with, ok := s.ids[id]
	if !ok {
		s.counts[kind]++
		with = name(s.counts[kind])
		s.ids[id] = with
	}
	return with
}
