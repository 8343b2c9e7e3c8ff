package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"time"
)

// Archive marks a session as put aside; [Transcripts.List] still returns it. A
// later prompt in the session takes the mark off. The mark is a file beside
// the transcript, so with a store the error is [ErrStoreUnsupported].
func (t Transcripts) Archive(ctx context.Context, id, dir string) error {
	return t.setArchived(ctx, id, dir, true)
}

// Unarchive takes the mark off that Archive made.
func (t Transcripts) Unarchive(ctx context.Context, id, dir string) error {
	return t.setArchived(ctx, id, dir, false)
}

// archiveMark is the content of archived.json.
type archiveMark struct {
	Archived bool   `json:"archived"`
	At       string `json:"at"`
	By       string `json:"by"`
}

func (t Transcripts) setArchived(ctx context.Context, id, dir string, archived bool) error {
	if t.Store != nil {
		return fmt.Errorf("archiving a session: %w", ErrStoreUnsupported)
	}
	mark, err := json.Marshal(archiveMark{Archived: archived, At: transcriptTime(time.Now()), By: "sdk"})
	if err != nil {
		return err
	}
	err = t.withSession(ctx, id, dir, func(p *projectsFolder, copies []sessionFile) error {
		var failed error
		for _, s := range copies {
			err := p.root.MkdirAll(s.folder(), 0o700)
			if err == nil {
				err = replaceFile(p.root, path.Join(s.folder(), "archived.json"), mark)
			}
			failed = errors.Join(failed, err)
		}
		return failed
	})
	if err != nil {
		return fmt.Errorf("archiving a session: %w", err)
	}
	return nil
}

// replaceFile writes a file below root whole or not at all.
func replaceFile(root *os.Root, name string, data []byte) error {
	temp := name + "." + newTranscriptID() + ".tmp"
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		root.Remove(temp)
		return err
	}
	if err := root.Rename(temp, name); err != nil {
		root.Remove(temp)
		return err
	}
	return nil
}

// archived tells whether a session is put aside and nobody spoke in it since.
func (p *projectsFolder) archived(s sessionFile, d *sessionDigest) bool {
	var mark archiveMark
	if !p.sidecar(path.Join(s.folder(), "archived.json"), &mark) || !mark.Archived {
		return false
	}
	at, err := time.Parse(time.RFC3339, mark.At)
	return err != nil || d.LastPromptAt <= at.UnixMilli()
}
