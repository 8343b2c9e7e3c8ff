package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// DirStore is a [Store] with every optional part that keeps each transcript as
// a file of JSON lines in a folder, laid out like the CLI's own:
//
//	Root/<project>/<session>.jsonl
//	Root/<project>/<session>/<subpath>.jsonl
//	Root/<project>/<session>.summary.json
//
// Folders have mode 0700 and files 0600. Keys cannot reach outside of Root,
// nor can links inside it: a key that is no plain name is an error.
//
// One DirStore may be used from several goroutines at once. Two of them, in
// this process or others, must not write the same session.
type DirStore struct {
	Root string // created when first written to

	mu sync.RWMutex // held for writing while files change
}

// Append implements [Store]. A crash leaves at most one line cut short, which
// Load skips.
func (s *DirStore) Append(_ context.Context, key SessionKey, entries []json.RawMessage) error {
	name, err := dirStoreFile(key)
	if err != nil || len(entries) == 0 {
		return err
	}
	var lines bytes.Buffer
	for _, e := range entries {
		if err := json.Compact(&lines, e); err != nil {
			return fmt.Errorf("appending to %v: %w", key, err)
		}
		lines.WriteByte('\n')
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.MkdirAll(s.Root, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(s.Root)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return fmt.Errorf("appending to %v: %w", key, err)
	}
	if err := appendFile(root, name, lines.Bytes()); err != nil {
		return fmt.Errorf("appending to %v: %w", key, err)
	}
	if key.Subpath == "" {
		return s.updateSummary(root, key, entries)
	}
	return nil
}

// appendFile adds lines to a file, or takes back what it wrote of them.
func appendFile(root *os.Root, name string, lines []byte) error {
	f, err := openRegular(root, name, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := writeLines(f, info.Size(), lines); err != nil {
		return errors.Join(err, f.Truncate(info.Size()))
	}
	return f.Close()
}

// updateSummary folds entries into the summary of a session. The file is
// written after the transcript, so its time is the newer one unless the
// process died between them; then listing loads the transcript.
func (s *DirStore) updateSummary(root *os.Root, key SessionKey, entries []json.RawMessage) error {
	name := dirStoreSummary(key)
	data, err := root.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("summarizing %v: %w", key, err)
	}
	sum := FoldSummary(Summary{Data: data}, key, entries)
	if err := replaceFile(root, name, sum.Data); err != nil {
		return fmt.Errorf("summarizing %v: %w", key, err)
	}
	return nil
}

// Load implements [Store]. It skips lines that are not JSON objects.
func (s *DirStore) Load(ctx context.Context, key SessionKey) ([]json.RawMessage, error) {
	name, err := dirStoreFile(key)
	if err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	root, err := os.OpenRoot(s.Root)
	if err != nil {
		return nil, missing(err)
	}
	defer root.Close()
	f, err := openRegular(root, name, os.O_RDONLY)
	if err != nil {
		return nil, missing(err)
	}
	defer f.Close()
	lines, err := readTranscript(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("loading %v: %w", key, err)
	}
	var entries []json.RawMessage
	for _, l := range lines {
		entries = append(entries, l.raw)
	}
	return entries, nil
}

// missing drops an error that says a file is not there.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}

// ListSessions implements [SessionLister].
func (s *DirStore) ListSessions(_ context.Context, project string) ([]SessionStamp, error) {
	var stamps []SessionStamp
	err := s.eachFile(project, ".jsonl", func(_ *os.Root, session string, info fs.FileInfo) error {
		stamps = append(stamps, SessionStamp{Session: session, Modified: info.ModTime()})
		return nil
	})
	return stamps, err
}

// ListSummaries implements [SummaryLister].
func (s *DirStore) ListSummaries(_ context.Context, project string) ([]Summary, error) {
	var sums []Summary
	err := s.eachFile(project, ".summary.json", func(root *os.Root, session string, info fs.FileInfo) error {
		data, err := root.ReadFile(dirStoreSummary(SessionKey{Project: project, Session: session}))
		if err != nil {
			return err
		}
		sums = append(sums, Summary{Session: session, Modified: info.ModTime(), Data: data})
		return nil
	})
	return sums, err
}

// eachFile calls do with the files of a project's folder whose names end so.
func (s *DirStore) eachFile(project, suffix string, do func(root *os.Root, session string, info fs.FileInfo) error) error {
	if !plainName().MatchString(project) {
		return badKey(SessionKey{Project: project})
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	root, err := os.OpenRoot(s.Root)
	if err != nil {
		return missing(err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), project)
	if err != nil {
		return missing(err)
	}
	for _, e := range entries {
		session, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || !e.Type().IsRegular() || !plainSession().MatchString(session) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if err := do(root, session, info); err != nil {
			return fmt.Errorf("listing project %s: %w", project, err)
		}
	}
	return nil
}

// ListSubkeys implements [SubkeyLister]. The result is sorted.
func (s *DirStore) ListSubkeys(_ context.Context, project, session string) ([]string, error) {
	if _, err := dirStoreFile(SessionKey{Project: project, Session: session}); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	root, err := os.OpenRoot(s.Root)
	if err != nil {
		return nil, missing(err)
	}
	defer root.Close()
	folder := path.Join(project, session)
	var subpaths []string
	err = fs.WalkDir(root.FS(), folder, func(name string, e fs.DirEntry, err error) error {
		if subpath, ok := strings.CutSuffix(name, ".jsonl"); ok && err == nil && e.Type().IsRegular() {
			subpaths = append(subpaths, strings.TrimPrefix(subpath, folder+"/"))
		}
		return missing(err)
	})
	slices.Sort(subpaths)
	return subpaths, err
}

// DeleteTranscript implements [SessionDeleter].
func (s *DirStore) DeleteTranscript(_ context.Context, key SessionKey) error {
	name, err := dirStoreFile(key)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	root, err := os.OpenRoot(s.Root)
	if err != nil {
		return missing(err)
	}
	defer root.Close()
	err = missing(root.Remove(name))
	if key.Subpath == "" {
		err = errors.Join(err, missing(root.Remove(dirStoreSummary(key))),
			root.RemoveAll(path.Join(key.Project, key.Session)))
	}
	if err != nil {
		return fmt.Errorf("deleting %v: %w", key, err)
	}
	return nil
}

var (
	plainName    = pattern(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}$`)
	plainSession = pattern(`^[A-Za-z0-9_-]{1,200}$`)
)

func badKey(key SessionKey) error { return fmt.Errorf("not a key for a folder: %.200q", key.String()) }

// dirStoreFile returns the path of a transcript below the root.
func dirStoreFile(key SessionKey) (string, error) {
	if !plainName().MatchString(key.Project) || !plainSession().MatchString(key.Session) {
		return "", badKey(key)
	}
	name := path.Join(key.Project, key.Session)
	if key.Subpath != "" {
		if !safeSubpath(key.Subpath) {
			return "", badKey(key)
		}
		name += "/" + key.Subpath
	}
	return name + ".jsonl", nil
}

func dirStoreSummary(key SessionKey) string {
	return path.Join(key.Project, key.Session+".summary.json")
}

// safeSubpath tells whether a subpath is a plain relative path on every
// system: no way up, no drive, no empty or hidden parts.
func safeSubpath(subpath string) bool {
	if strings.ContainsAny(subpath, "\\:\x00") {
		return false
	}
	for part := range strings.SplitSeq(subpath, "/") {
		if part == "" || strings.HasPrefix(part, ".") {
			return false
		}
	}
	return true
}
