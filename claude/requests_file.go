package claude

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"
)

// Rewind is what going back to an earlier user message does to the files.
type Rewind struct {
	Reply
	CanRewind    bool     `json:"canRewind"`
	Error        string   `json:"error"` // why it cannot; empty if it can
	FilesChanged []string `json:"filesChanged"`
	Insertions   int      `json:"insertions"`   // lines
	Deletions    int      `json:"deletions"`    // lines
	SkippedLinks int      `json:"skippedLinks"` // symbolic links that were left alone
}

type rewindRequest struct {
	UserMessageID string `json:"user_message_id"`
	DryRun        bool   `json:"dry_run,omitempty"`
}

// RewindFiles puts the files back to how they were when the user message with
// that uuid was sent. It needs Options.FileCheckpoints. CLI 2.1.325 tells what will change only to [Session.PreviewRewind].
// Files that cannot be put back are a [*ControlError], beside the answer if the
// CLI gave one.
func (s *Session) RewindFiles(ctx context.Context, userMessageID string) (*Rewind, error) {
	r, err := ask[Rewind](ctx, s, "rewind_files", rewindRequest{UserMessageID: userMessageID})
	if err == nil && r.Error != "" {
		err = &ControlError{Request: "rewind_files", Message: r.Error}
	}
	return r, err
}

// PreviewRewind tells what [Session.RewindFiles] would do, and does nothing.
// That it cannot be done is in the answer and no error.
func (s *Session) PreviewRewind(ctx context.Context, userMessageID string) (*Rewind, error) {
	return ask[Rewind](ctx, s, "rewind_files", rewindRequest{UserMessageID: userMessageID, DryRun: true})
}

// SeedReadState tells the CLI that the model has read the file at path as it
// was at mtime, so that the model may edit it. It does nothing if the file has
// changed since.
func (s *Session) SeedReadState(ctx context.Context, path string, mtime time.Time) error {
	return s.call(ctx, "seed_read_state", struct {
		Path  string `json:"path"`
		MTime int64  `json:"mtime"`
	}{path, mtime.UnixMilli()}, nil)
}

// FileContents is a file as the CLI read it.
type FileContents struct {
	Reply
	Data      []byte `json:"-"`
	Path      string `json:"absPath"`   // absolute
	Truncated bool   `json:"truncated"` // Data is the beginning of the file
	Lossy     bool   `json:"lossy"`     // an older CLI sent text, and replaced what is not UTF-8
}

// ReadFile reads a file of the machine that the CLI runs on, as far as the
// model may read it. A relative path is below the session's working directory.
// More than maxBytes are cut off; zero means the CLI's limit, 1 MB.
func (s *Session) ReadFile(ctx context.Context, path string, maxBytes int) (*FileContents, error) {
	type reply struct {
		FileContents
		Contents string `json:"contents"`
		Encoding string `json:"encoding"`
	}
	r, err := ask[reply](ctx, s, "read_file", struct {
		Path     string `json:"path"`
		MaxBytes int    `json:"max_bytes,omitempty"`
		Encoding string `json:"encoding"`
	}{path, maxBytes, "base64"})
	if err != nil {
		return nil, err
	}
	r.Data = []byte(r.Contents)
	if r.Encoding == "base64" { // a CLI that predates the field sends text
		if r.Data, err = base64.StdEncoding.DecodeString(r.Contents); err != nil {
			return nil, fmt.Errorf("reading file %s: %w", path, err)
		}
	}
	return &r.FileContents, nil
}

// FileSuggestions are files whose path is like what was typed, best first.
type FileSuggestions struct {
	Reply
	Suggestions []FileSuggestion `json:"suggestions"`
	CWD         string           `json:"cwd"` // what the paths are relative to; empty if not told
}

// FileSuggestion is one file or folder.
type FileSuggestion struct {
	Path string `json:"path"`
}

// FileSuggestions completes the beginning of a path that a user types after @.
func (s *Session) FileSuggestions(ctx context.Context, query string) (*FileSuggestions, error) {
	return ask[FileSuggestions](ctx, s, "file_suggestions", struct {
		Query string `json:"query"`
	}{query})
}
