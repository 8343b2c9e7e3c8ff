package tools

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Bound returns text if it is no longer than MaxResult. Otherwise the whole is
// written to the spool, in a file named after id, and what is returned is its
// beginning and its end, cut between lines where it can be, with its size and
// the file: no longer than MaxResult. If it cannot be written, it is cut all the
// same, and the error says why.
func (s *Set) Bound(id, text string) (string, error) {
	if len(text) <= s.opts.MaxResult {
		return text, nil
	}
	path, err := s.keep(id, text)
	where := "Full output saved to: " + path
	if err != nil {
		where = "The rest is lost: it could not be saved"
	}
	return abridge(text, text, int64(len(text)), where, s.opts.MaxResult), err
}

// keep writes text to a new file in the spool.
func (s *Set) keep(id, text string) (path string, err error) {
	f, path, err := s.create(id, ".txt")
	if err != nil {
		return "", fmt.Errorf("saving the result of %s: %w", id, err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("saving the result of %s: %w", id, err)
	}
	return path, nil
}

// create makes a new file in the spool, named after id. A file or link that is
// there already is left alone.
func (s *Set) create(id, ext string) (*os.File, string, error) {
	name := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (r == '-' || r == '_' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z') {
			return r
		}
		return '_'
	}, clip(id, 80))
	if name == "" {
		name = "result"
	}
	spool, err := s.spoolFolder()
	if err != nil {
		return nil, "", err
	}
	root, err := spool.open()
	if err != nil {
		return nil, "", err
	}
	defer root.Close()
	for try := name; ; try = name + "-" + strings.ToLower(rand.Text()[:8]) {
		f, err := root.OpenFile(try+ext, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		return f, filepath.Join(spool.path, try+ext), err
	}
}

// abridge tells of a text of size bytes, of which head is the beginning and tail
// the end, in no more than most bytes.
func abridge(head, tail string, size int64, where string, most int) string {
	frame := fmt.Sprintf("<persisted-output>\nOutput too large (%s). %s\n\nBeginning and end:\n", sizeText(size), clip(where, most/2))
	const gap, foot = "\n[… %d bytes left out …]\n", "\n</persisted-output>"
	room := max(0, most-len(frame)-len(gap)-len(foot)-20)
	head = cutEnd(head, room*2/3)
	tail = cutStart(tail, room-len(head))
	left := size - int64(len(head)) - int64(len(tail))
	return frame + head + fmt.Sprintf(gap, left) + tail + foot
}

// cutEnd returns the beginning of text, of at most most bytes: whole lines if
// the last of them is not too far away, whole characters in any case.
func cutEnd(text string, most int) string {
	if len(text) <= most {
		return text
	}
	text = text[:most]
	if i := strings.LastIndexByte(text, '\n'); i >= most/2 {
		return text[:i]
	}
	for i := range utf8.UTFMax {
		if r, n := utf8.DecodeLastRuneInString(text); r != utf8.RuneError || n != 1 || i == utf8.UTFMax-1 {
			break
		}
		text = text[:len(text)-1]
	}
	return text
}

// cutStart is cutEnd for the end of text.
func cutStart(text string, most int) string {
	if len(text) <= most {
		return text
	}
	text = text[len(text)-most:]
	if i := strings.IndexByte(text, '\n'); i >= 0 && i < most/2 {
		return text[i+1:]
	}
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}

// sizeText says a size as the CLI does.
func sizeText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return strings.Replace(fmt.Sprintf("%.1fKB", float64(n)/(1<<10)), ".0KB", "KB", 1)
	}
	return strings.Replace(fmt.Sprintf("%.1fMB", float64(n)/(1<<20)), ".0MB", "MB", 1)
}
