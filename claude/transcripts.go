package claude

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors that callers of [Transcripts] branch on.
var (
	// ErrSessionNotFound says that no such session is kept. Its text names
	// the folders that were searched.
	ErrSessionNotFound = errors.New("session not found")
	// ErrInvalidSessionID says that an id is not a UUID.
	ErrInvalidSessionID = errors.New("not a session id")
	// ErrMessageNotFound says that a session has no message with an id.
	ErrMessageNotFound = errors.New("message not found")
)

// Transcripts reads and changes the sessions that the CLI keeps on disk, or
// their copies in a store. It needs no CLI. The zero value is the CLI's own
// folder. It holds no state: methods may be called at once, also while the
// CLI runs.
//
// Where a method takes a directory, that means the sessions started in it and
// in the other worktrees of its git repository; empty means all projects. In
// a store it means the sessions under its [ProjectKey]; empty means the
// current directory, for a store knows sessions only by project.
type Transcripts struct {
	ConfigDir string // the CLI's folder; empty means $CLAUDE_CONFIG_DIR, or else ~/.claude
	Store     Store  // where to look instead of on disk; nil means on disk
}

// SessionInfo is what a listing says about a session.
type SessionInfo struct {
	ID          string
	Summary     string    // what to show for it: title, last prompt, summary or first prompt; empty if a store could not load it
	Title       string    // given by the user, or else by the CLI; may be empty
	FirstPrompt string    // the first thing the user said, at most 200 characters
	GitBranch   string    // at the end of the session
	Dir         string    // where it ran
	Tag         string    // given with [Transcripts.Tag]
	Created     time.Time // of the first entry; zero if unknown
	Modified    time.Time
	Size        int64 // of the transcript in bytes; zero in a store
	Archived    bool  // never in a store
}

// TranscriptMessage is one message of a session as it was recorded.
type TranscriptMessage struct {
	Type            string // "user", "assistant" or "system"
	UUID            string
	SessionID       string
	ParentToolUseID string          // the tool call that started the subagent; empty in the session itself
	ParentAgentID   string          // the subagent that started this one; empty if the session did
	Timestamp       time.Time       // zero if unknown
	Message         json.RawMessage // in the form of the Messages API; nil in system messages
	Raw             json.RawMessage // the whole entry
}

var sessionIDForm = pattern(`(?i)^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

func validSessionID(id string) bool { return sessionIDForm().MatchString(id) }

func checkSessionID(id string) error {
	if !validSessionID(id) {
		return fmt.Errorf("%w: %.80q", ErrInvalidSessionID, id)
	}
	return nil
}

// newTranscriptID returns a random UUID.
func newTranscriptID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// transcriptTime is how the CLI writes the time.
func transcriptTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// notFound is the error for a session that is in none of the places.
func notFound(id string, places ...string) error {
	if len(places) == 0 {
		return fmt.Errorf("%w: %s (no folder to search)", ErrSessionNotFound, id)
	}
	const shown = 8
	if more := len(places) - shown; more > 0 {
		places = append(places[:shown:shown], fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("%w: %s (searched %s)", ErrSessionNotFound, id, strings.Join(places, ", "))
}

// page cuts what offset and limit ask for; a limit of zero or less means all.
func page[T any](all []T, offset, limit int) []T {
	all = all[min(max(offset, 0), len(all)):]
	if limit > 0 && limit < len(all) {
		all = all[:limit]
	}
	return all
}

// storeKey is the key under which a store has a session.
func storeKey(id, dir string) SessionKey {
	return SessionKey{Project: ProjectKey(dir), Session: id}
}
