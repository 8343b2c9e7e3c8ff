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
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// materialOptions says which session to write out of a store.
type materialOptions struct {
	Store     Store
	Resume    string        // the session to resume; empty means none
	Continue  bool          // without Resume: the newest session
	Dir       string        // where the CLI will run; empty means the current directory
	ConfigDir string        // whose settings to take; empty means that of Home
	Home      string        // the CLI's home; empty means $CLAUDE_CONFIG_DIR, or else ~/.claude
	Timeout   time.Duration // for each call of the store; zero means a minute
}

// material is a session written out of a store, with the settings that the CLI
// needs to resume it.
type material struct {
	ConfigDir string       // for the CLI's CLAUDE_CONFIG_DIR
	Session   string       // for its --resume
	remove    func() error // deletes ConfigDir; call it after the CLI has ended
}

// materialize writes a session from a store into a new configuration folder,
// for the CLI resumes only from disk. It returns nil if there is nothing to
// resume: no store, no UUID to resume, or a store that does not know it. If it
// fails it leaves nothing behind.
func materialize(ctx context.Context, opts materialOptions) (*material, error) {
	if opts.Store == nil || !opts.Continue && opts.Resume == "" {
		return nil, nil
	}
	if opts.Timeout <= 0 {
		opts.Timeout = mirrorTimeout
	}
	key := storeKey(opts.Resume, opts.Dir)
	var entries []json.RawMessage
	var err error
	switch {
	case opts.Resume == "":
		key.Session, entries, err = newestSession(ctx, opts, key.Project)
	case validSessionID(opts.Resume):
		entries, err = loadBounded(ctx, opts, key)
	}
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "claude-resume-")
	if err != nil {
		return nil, fmt.Errorf("resuming session %s: %w", key.Session, err)
	}
	m := &material{ConfigDir: dir, Session: key.Session, remove: func() error { return removeDir(dir, os.RemoveAll) }}
	if err := writeMaterial(ctx, dir, opts, key, entries); err != nil {
		return nil, errors.Join(fmt.Errorf("resuming session %s: %w", key.Session, err), m.remove())
	}
	return m, nil
}

// newestSession loads the session that was written last and is not a
// subagent's. It returns no entries if there is none.
func newestSession(ctx context.Context, opts materialOptions, project string) (string, []json.RawMessage, error) {
	stamps, err := callStore(ctx, opts.Timeout, func(ctx context.Context) ([]SessionStamp, error) {
		return storeSessions(ctx, opts.Store, project)
	})
	if err != nil {
		return "", nil, fmt.Errorf("continuing the last session: listing sessions: %w", err)
	}
	stamps = slices.SortedFunc(slices.Values(stamps), func(a, b SessionStamp) int {
		return newestFirst(a.Modified, b.Modified, a.Session, b.Session)
	})
	for _, s := range stamps {
		if !validSessionID(s.Session) {
			continue
		}
		entries, err := loadBounded(ctx, opts, SessionKey{Project: project, Session: s.Session})
		if err != nil {
			return "", nil, err
		}
		if d := digestEntries(entries); d.Begun && !d.IsSidechain {
			return s.Session, entries, nil
		}
	}
	return "", nil, nil
}

func loadBounded(ctx context.Context, opts materialOptions, key SessionKey) ([]json.RawMessage, error) {
	entries, err := callStore(ctx, opts.Timeout, func(ctx context.Context) ([]json.RawMessage, error) {
		return opts.Store.Load(ctx, key)
	})
	if err != nil {
		return nil, fmt.Errorf("loading %v from the store: %w", key, err)
	}
	return entries, nil
}

// writeMaterial fills the new configuration folder.
func writeMaterial(ctx context.Context, dir string, opts materialOptions, key SessionKey, entries []json.RawMessage) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	folder := path.Join("projects", key.Project)
	if name := projectNameOverride(); name != "" {
		folder = path.Join("projects", name) // the CLI will run with CLAUDE_CONFIG_DIR set
	}
	if err := writeTranscript(root, path.Join(folder, key.Session+".jsonl"), entries); err != nil {
		return err
	}
	if err := writeSubagents(ctx, root, path.Join(folder, key.Session), opts, key); err != nil {
		return err
	}
	if err := seedConfig(root, opts.ConfigDir, opts.Home); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// writeSubagents writes the transcripts of the session's subagents, if the
// store can tell them. Subpaths that would lead elsewhere are skipped.
func writeSubagents(ctx context.Context, root *os.Root, folder string, opts materialOptions, key SessionKey) error {
	subpaths, err := callStore(ctx, opts.Timeout, func(ctx context.Context) ([]string, error) {
		return storeSubkeys(ctx, opts.Store, key)
	})
	if errors.Is(err, ErrStoreUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing subagents: %w", err)
	}
	for _, subpath := range subpaths {
		if !safeSubpath(subpath) {
			continue
		}
		key.Subpath = subpath
		entries, err := loadBounded(ctx, opts, key)
		if err != nil {
			return err
		}
		entries, meta := splitMetadata(entries)
		name := path.Join(folder, subpath)
		if len(entries) > 0 {
			if err := writeTranscript(root, name+".jsonl", entries); err != nil {
				return err
			}
		}
		if e, ok := parseObject(meta); ok {
			e.remove("type")
			if err := writeNew(root, name+".meta.json", e.bytes()); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeTranscript writes entries as JSON lines. A store may have reordered
// their members; the CLI expects the type of metadata entries first.
func writeTranscript(root *os.Root, name string, entries []json.RawMessage) error {
	var b bytes.Buffer
	for i, raw := range entries {
		e, ok := parseObject(raw)
		if !ok {
			return fmt.Errorf("entry %d from the store is not a JSON object", i)
		}
		e.first("type")
		b.Write(e.bytes())
		b.WriteByte('\n')
	}
	return writeNew(root, name, b.Bytes())
}

func writeNew(root *os.Root, name string, data []byte) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	return root.WriteFile(name, data, 0o600)
}

// seedConfig copies what the CLI needs of the user's configuration: who they
// are and how they set it up. It does not ask the macOS keychain, where the
// CLI may keep credentials instead of in a file: that would start a program of
// the system and may open a dialog. There the caller passes credentials in the
// CLI's environment.
func seedConfig(root *os.Root, configDir, home string) error {
	beside := configDir == "" && (home != "" || os.Getenv("CLAUDE_CONFIG_DIR") == "")
	if configDir == "" && home != "" {
		configDir = filepath.Join(home, ".claude")
	}
	config, err := claudeConfigDir(configDir)
	if err != nil {
		return nil // no home, nothing to copy
	}
	global := config
	if beside {
		global = filepath.Dir(config) // ~/.claude.json lies beside ~/.claude
	}
	for _, seed := range []struct {
		dir, name string
		clean     func([]byte) ([]byte, bool)
	}{
		{config, ".credentials.json", withoutRefreshToken},
		{global, ".claude.json", asIs},
		{config, ".config.json", asIs},
		{config, "settings.json", withoutPlugins},
		{config, "cowork_settings.json", withoutPlugins},
	} {
		data, ok := readSeed(filepath.Join(seed.dir, seed.name))
		if !ok {
			continue
		}
		if data, ok = seed.clean(data); !ok {
			continue
		}
		if err := root.WriteFile(seed.name, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// maxSeed bounds the configuration files that are copied.
const maxSeed = 64 << 20

// readSeed reads a regular file, or a link to one, and skips everything else.
func readSeed(name string) ([]byte, bool) {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
		return nil, false
	}
	flag := os.O_RDONLY
	if runtime.GOOS != "windows" {
		flag |= syscall.O_NONBLOCK // should a pipe have taken its place
	}
	f, err := os.OpenFile(name, flag, 0)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSeed+1))
	return data, err == nil && len(data) <= maxSeed
}

func asIs(data []byte) ([]byte, bool) { return data, true }

// withoutRefreshToken returns credentials that cannot be renewed: a refresh
// token works once, and using it in a folder that is thrown away would log the
// user out. What cannot be read is not copied, for the token may be in it.
func withoutRefreshToken(data []byte) ([]byte, bool) {
	all, ok := parseObject(withoutBOM(data))
	if !ok {
		return nil, false
	}
	if login, ok := parseObject(all.get("claudeAiOauth")); ok {
		login.remove("refreshToken")
		all.set("claudeAiOauth", login.bytes())
	}
	return all.bytes(), true
}

// withoutPlugins returns settings without what only makes sense in the folder
// that they come from. What needs no change, or cannot be read, stays as it is.
func withoutPlugins(data []byte) ([]byte, bool) {
	settings, ok := parseObject(withoutBOM(data))
	if !ok {
		return data, true
	}
	changed := false
	for _, name := range []string{"enabledPlugins", "extraKnownMarketplaces", "additionalMarketplaces"} {
		changed = settings.remove(name) || changed
	}
	if env, ok := parseObject(settings.get("env")); ok && env.remove("CLAUDE_CONFIG_DIR") {
		settings.set("env", env.bytes())
		changed = true
	}
	if !changed {
		return data, true
	}
	return settings.bytes(), true
}

func withoutBOM(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) }

// removeDir deletes a folder, and tries again while something still holds on
// to it, such as a virus scanner or a child that is slow to die.
func removeDir(dir string, remove func(string) error) error {
	for attempt := 1; ; attempt++ {
		err := remove(dir)
		busy := errors.Is(err, syscall.EBUSY) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTEMPTY)
		if !busy || attempt == 5 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
