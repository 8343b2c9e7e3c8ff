package tools

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
)

type writeInput struct {
	Path    string `json:"file_path"`
	Content string `json:"content"`
}

func (s *Set) writeTool() Tool {
	t := Tool{
		Name: "Write",
		Description: "Writes a file, and makes the folders on the way. A file that is there is replaced: it must have been read " +
			"with Read before. To change a part of a file, use Edit.",
		Schema: json.RawMessage(`{"type":"object","properties":{
"file_path":{"type":"string","description":"The absolute path to the file to write"},
"content":{"type":"string","description":"The content to write to the file"}
},"required":["file_path","content"],"additionalProperties":false}`),
	}
	t.Access = func(input json.RawMessage) (Access, error) {
		in, err := decode[writeInput](t, input)
		if err != nil {
			return Access{}, err
		}
		return s.access(in.Path, "file_path", input, true)
	}
	t.Run = func(ctx context.Context, input json.RawMessage) (Result, error) {
		in, err := decode[writeInput](t, input)
		if err != nil {
			return Result{}, err
		}
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		return s.write(in)
	}
	return t
}

const current = " (file state is current in your context — no need to Read it back)"

func (s *Set) write(in writeInput) (Result, error) {
	s.edits.Lock()
	defer s.edits.Unlock()
	p, err := s.inside(in.Path, true)
	if err != nil {
		return Result{}, err
	}
	old, err := s.load(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := s.replace(p, []byte(in.Content), 0o666); err != nil {
			return Result{}, s.explain(err, in.Path)
		}
		return Result{
			Text: "File created successfully at: " + in.Path + current,
			Data: map[string]any{"type": "create", "filePath": in.Path, "content": in.Content, "structuredPatch": []hunk{}, "originalFile": nil},
		}, nil
	case err != nil && old != nil && old.info.IsDir():
		return Result{}, tell("%s is a directory, not a file. To create a file inside it, include the file name in file_path.", in.Path)
	case err != nil:
		return Result{}, s.explain(err, in.Path)
	}
	if err := s.checkSeen(p.path, old.info, old.data); err != nil {
		return Result{}, err
	}
	if err := s.replace(p, []byte(in.Content), old.info.Mode().Perm()); err != nil {
		return Result{}, s.explain(err, in.Path)
	}
	data := map[string]any{"type": "update", "filePath": in.Path, "content": in.Content}
	if old.data != nil {
		data["structuredPatch"], data["originalFile"] = patch(old.text(), in.Content), old.text()
	}
	return Result{Text: "The file " + in.Path + " has been updated successfully." + current, Data: data}, nil
}

// loaded is a file that is about to be changed.
type loaded struct {
	info fs.FileInfo
	data []byte // nil if it is too large to be held
}

// text returns the content with the line ends that the model sees.
func (l *loaded) text() string { return strings.ReplaceAll(string(l.data), "\r\n", "\n") }

// load reads the file at p. With the error that it is a folder, what it found
// is returned too.
func (s *Set) load(p place) (*loaded, error) {
	dir, name, err := p.enter(false)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if info, err := dir.Lstat(name); err == nil && info.IsDir() {
		return &loaded{info: info}, tell("EISDIR: illegal operation on a directory, read '%s'", p.path)
	}
	f, info, err := s.openIn(dir, name, p.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > maxWhole {
		return &loaded{info: info}, nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxWhole+1))
	if err != nil || len(data) > maxWhole {
		return &loaded{info: info}, err
	}
	return &loaded{info: info, data: data}, nil
}

// replace puts a file with that content at p: a new one, renamed, so that no
// link is written through and nobody sees half of it.
func (s *Set) replace(p place, data []byte, mode fs.FileMode) error {
	dir, name, err := p.enter(true)
	if err != nil {
		return err
	}
	defer dir.Close()
	if name == "." {
		return tell("%s is a directory, not a file.", p.path)
	}
	temp := ".nestor-" + strings.ToLower(rand.Text()[:12]) + ".tmp"
	f, err := dir.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && mode != 0o666 { // that of the old file, whatever the umask; a new file's is left to it
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = dir.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, dir.Remove(temp))
	}
	info, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	st := stampOf(info)
	st.sum = sumOf(data)
	s.remember(p.path, st)
	return nil
}
