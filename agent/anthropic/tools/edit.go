package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

type editInput struct {
	Path string `json:"file_path"`
	replacement
}

// replacement is one exact change of a text.
type replacement struct {
	Old string `json:"old_string"`
	New string `json:"new_string"`
	All bool   `json:"replace_all"`
}

type multiEditInput struct {
	Path  string        `json:"file_path"`
	Edits []replacement `json:"edits"`
}

func (s *Set) editTool() Tool {
	t := Tool{
		Name: "Edit",
		Description: "Replaces a text in a file by another, exactly. The file must have been read with Read before. old_string must " +
			"occur once, unless replace_all is set, and is without the line numbers that Read adds. An empty old_string makes a new file.",
		Schema: json.RawMessage(`{"type":"object","properties":{
"file_path":{"type":"string","description":"The absolute path to the file to modify"},
"old_string":{"type":"string","description":"The text to replace"},
"new_string":{"type":"string","description":"The text to replace it with (must be different from old_string)"},
"replace_all":{"type":"boolean","default":false,"description":"Replace all occurrences of old_string (default false)"}
},"required":["file_path","old_string","new_string"],"additionalProperties":false}`),
	}
	t.Access = func(input json.RawMessage) (Access, error) {
		in, err := decode[editInput](t, input)
		if err != nil {
			return Access{}, err
		}
		return s.access(in.Path, "file_path", input, true)
	}
	t.Run = func(ctx context.Context, input json.RawMessage) (Result, error) {
		in, err := decode[editInput](t, input)
		if err != nil {
			return Result{}, err
		}
		return s.edit(ctx, in.Path, []replacement{in.replacement}, false)
	}
	return t
}

func (s *Set) multiEditTool() Tool {
	t := Tool{
		Name: "MultiEdit",
		Description: "Makes several replacements in one file, one after the other, each as Edit does. Either all are made or, if one " +
			"cannot be, none.",
		Schema: json.RawMessage(`{"type":"object","properties":{
"file_path":{"type":"string","description":"The absolute path to the file to modify"},
"edits":{"type":"array","minItems":1,"description":"The replacements, in order","items":{"type":"object","properties":{
"old_string":{"type":"string","description":"The text to replace"},
"new_string":{"type":"string","description":"The text to replace it with"},
"replace_all":{"type":"boolean","default":false,"description":"Replace all occurrences of old_string (default false)"}
},"required":["old_string","new_string"],"additionalProperties":false}}
},"required":["file_path","edits"],"additionalProperties":false}`),
	}
	t.Access = func(input json.RawMessage) (Access, error) {
		in, err := decode[multiEditInput](t, input)
		if err != nil {
			return Access{}, err
		}
		return s.access(in.Path, "file_path", input, true)
	}
	t.Run = func(ctx context.Context, input json.RawMessage) (Result, error) {
		in, err := decode[multiEditInput](t, input)
		if err != nil {
			return Result{}, err
		}
		if len(in.Edits) == 0 {
			return Result{}, inputError(t.Name, []string{"The parameter `edits` is empty"})
		}
		return s.edit(ctx, in.Path, in.Edits, true)
	}
	return t
}

func (s *Set) edit(ctx context.Context, name string, edits []replacement, multi bool) (Result, error) {
	s.edits.Lock()
	defer s.edits.Unlock()
	p, err := s.inside(name, true)
	if err != nil {
		return Result{}, err
	}
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	state := current
	old, err := s.load(p)
	fresh := errors.Is(err, fs.ErrNotExist) && edits[0].Old == ""
	switch {
	case fresh:
		old = &loaded{data: []byte{}}
	case err != nil:
		return Result{}, s.explain(err, name)
	case old.data == nil:
		return Result{}, tell("File content (%s) exceeds maximum allowed size (%s) for an edit. Use a shell command.",
			sizeText(old.info.Size()), sizeText(maxWhole))
	case edits[0].Old == "" && len(old.data) > 0:
		return Result{}, tell("Cannot create new file - file already exists.")
	default:
		switch err := s.checkSeen(p.path, old.info, old.data); {
		case errors.Is(err, errStale): // what is replaced is there all the same
			state = stale
		case err != nil:
			return Result{}, err
		}
	}
	text := string(old.data)
	for i, e := range edits {
		if text, err = e.apply(text, i == 0 && len(old.data) == 0); err != nil {
			if multi {
				err = tell("Edit %d of %d: %v\nNothing was changed.", i+1, len(edits), err)
			}
			return Result{}, err
		}
	}
	if len(text) > 2*maxWhole {
		return Result{}, tell("The file would have %s, which is too much.", sizeText(int64(len(text))))
	}
	mode := fs.FileMode(0o666)
	if !fresh {
		mode = old.info.Mode().Perm()
	}
	if err := s.replace(p, []byte(text), mode); err != nil {
		return Result{}, s.explain(err, name)
	}
	after := loaded{data: []byte(text)}
	data := map[string]any{
		"filePath": name, "originalFile": old.text(), "structuredPatch": patch(old.text(), after.text()), "userModified": false,
	}
	if multi {
		data["edits"] = edits
		return Result{Text: fmt.Sprintf("Applied %d edits to %s.%s", len(edits), name, state), Data: data}, nil
	}
	e := edits[0]
	data["oldString"], data["newString"], data["replaceAll"] = e.Old, e.New, e.All
	if e.All {
		return Result{Text: "The file " + name + " has been updated. All occurrences were successfully replaced." + state, Data: data}, nil
	}
	return Result{Text: "The file " + name + " has been updated successfully." + state, Data: data}, nil
}

// stale is said of an edit in a file that somebody else changed; seen in 2.1.325.
const stale = " (note: the file had been modified on disk since you last read it — the edit applied cleanly, but the file contains other changes not in your context. Read it before edits that depend on surrounding content.)"

// apply returns text with the replacement made. An empty Old is for a text that
// is empty, which begins says.
func (e replacement) apply(text string, begins bool) (string, error) {
	if e.Old == e.New {
		return "", tell("No changes to make: old_string and new_string are exactly the same.")
	}
	if e.Old == "" {
		if !begins {
			return "", tell("Cannot create new file - file already exists.")
		}
		return e.New, nil
	}
	// The model sees no carriage returns. A file that has them keeps them.
	windows := strings.Count(text, "\r\n")*2 > strings.Count(text, "\n")
	was, is := e.Old, e.New
	if windows {
		was, is = withReturns(was), withReturns(is)
	}
	n := strings.Count(text, was)
	if n == 0 {
		if was = withReturns(e.Old); windows {
			was, is = e.Old, e.New
		}
		n = strings.Count(text, was)
	}
	switch {
	case n == 0:
		return "", tell("String to replace not found in file.\nString: %s", clip(e.Old, 2000))
	case n > 1 && !e.All:
		return "", tell("Found %d matches of the string to replace, but replace_all is false. To replace all occurrences, set replace_all "+
			"to true. To replace only one occurrence, please provide more context to uniquely identify the instance.\nString: %s", n, clip(e.Old, 2000))
	case len(text)+n*(len(is)-len(was)) > 2*maxWhole:
		return "", tell("The file would become too large: %d replacements by %s.", n, sizeText(int64(len(is))))
	}
	return strings.ReplaceAll(text, was, is), nil
}

func withReturns(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
}
