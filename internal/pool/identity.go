package pool

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dfaf701a/nestor/claude"
)

// identity stands for all fields of options: equal identities are equal
// options.
type identity [sha256.Size]byte

// identify returns the identity of options, or an error that names the field
// because of which no CLI can be started ahead with them.
func identify(opts claude.Options) (id identity, err error) {
	for _, no := range []struct {
		field string
		set   bool
		why   string
	}{
		{"SessionID", opts.SessionID != "", "one conversation cannot be started twice"},
		{"Resume", opts.Resume != "", "the conversation may go on after the CLI has read it"},
		{"Continue", opts.Continue, "another conversation may be the last one by then"},
		{"Path", opts.Path != "" && !filepath.IsAbs(opts.Path), "it is not absolute, so what it means may change"},
	} {
		if no.set {
			return id, fmt.Errorf("%s: %s", no.field, no.why)
		}
	}
	if name := early(opts.Hooks); name != "" {
		return id, fmt.Errorf("%s: the CLI may call it before it is taken", "Hooks."+name)
	}
	h := sha256.New()
	if err := encode(h, "command", reflect.ValueOf(command(opts))); err != nil {
		return id, err
	}
	opts.Wrap = nil
	if err := encode(h, "", reflect.ValueOf(opts)); err != nil {
		return id, err
	}
	return identity(h.Sum(nil)), nil
}

// bound tells whether a field is what a CLI that is taken gets from its owner:
// for these, all that are set are alike.
func bound(field string, v reflect.Value) bool {
	switch field {
	case "CanUseTool", "OnFrame":
		return true
	}
	return v.Type() == reflect.TypeFor[*mcp.Server]() && strings.HasPrefix(field, "MCPServers[") ||
		v.Kind() == reflect.Func && strings.HasPrefix(field, "Hooks.")
}

// encode writes v so that different values are written differently. It goes
// through all fields, also those that a later version of the options adds, and
// fails at what cannot be compared: functions that it cannot lead to those of
// another, implementations of interfaces that this program calls, and hidden
// state.
func encode(w io.Writer, field string, v reflect.Value) error {
	opaque := func() error {
		return fmt.Errorf("%s: a %s cannot be compared", field, v.Type())
	}
	fmt.Fprintf(w, "%s ", v.Kind())
	switch v.Kind() {
	case reflect.Func, reflect.Chan, reflect.Interface, reflect.Pointer, reflect.Slice, reflect.Map:
		if v.IsNil() { // an empty list is another thing than none
			fmt.Fprint(w, "nil ")
			return nil
		}
	}
	if bound(field, v) {
		fmt.Fprint(w, "set ")
		return nil
	}
	if v.Type() == reflect.TypeFor[*slog.Logger]() {
		fmt.Fprintf(w, "%x ", v.Pointer())
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		fmt.Fprintf(w, "%d:%s", v.Len(), v.String())
	case reflect.Pointer:
		return encode(w, field, v.Elem())
	case reflect.Interface:
		for m := range v.Type().Methods() {
			if m.IsExported() { // else it is one of package claude's own types
				return opaque()
			}
		}
		fmt.Fprintf(w, "%s ", v.Elem().Type())
		return encode(w, field, v.Elem())
	case reflect.Struct:
		for f, value := range v.Fields() {
			if !f.IsExported() && v.Type() != reflect.TypeFor[claude.Matcher]() {
				return opaque()
			}
			fmt.Fprintf(w, "%s ", f.Name)
			if err := encode(w, strings.TrimPrefix(field+"."+f.Name, "."), value); err != nil {
				return err
			}
		}
	case reflect.Slice, reflect.Array:
		fmt.Fprintf(w, "%d:", v.Len())
		for i := range v.Len() {
			if err := encode(w, fmt.Sprintf("%s[%d]", field, i), v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String {
			return opaque()
		}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		fmt.Fprintf(w, "%d:", len(keys))
		for _, key := range keys {
			fmt.Fprintf(w, "%d:%s", key.Len(), key.String())
			if err := encode(w, fmt.Sprintf("%s[%q]", field, key.String()), v.MapIndex(key)); err != nil {
				return err
			}
		}
	case reflect.Bool:
		fmt.Fprintf(w, "%t ", v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		fmt.Fprintf(w, "%d ", v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		fmt.Fprintf(w, "%d ", v.Uint())
	case reflect.Float32, reflect.Float64:
		fmt.Fprintf(w, "%g ", v.Float())
	default:
		return opaque()
	}
	return nil
}

// surroundings are what a CLI takes in when it starts, besides its options.
type surroundings struct {
	path    string      // of the CLI; empty if it cannot be found
	program fs.FileInfo // nil if there is none
	dir     string
	folder  fs.FileInfo // nil if there is none
	env     identity    // of the inherited environment
}

// look returns the surroundings that a CLI with opts would start in now. What
// is wrong with them is for the start to say.
func look(opts claude.Options) (s surroundings) {
	s.path = opts.Path
	if s.path == "" {
		s.path, _ = claude.Find()
	}
	s.program, _ = os.Stat(s.path)
	s.dir, _ = filepath.Abs(opts.Dir)
	s.folder, _ = os.Stat(s.dir)
	if !opts.ReplaceEnv {
		h := sha256.New()
		for _, kv := range os.Environ() {
			fmt.Fprintf(h, "%d:%s", len(kv), kv)
		}
		s.env = identity(h.Sum(nil))
	}
	return s
}

// equal tells whether a CLI that was started in s is as good as one that is
// started in now. A folder that was removed and made again is another one.
func (s surroundings) equal(now surroundings) bool {
	return s.path == now.path && s.dir == now.dir && s.env == now.env &&
		same(s.folder, now.folder) && same(s.program, now.program) &&
		(s.program == nil || s.program.Size() == now.program.Size() && s.program.ModTime().Equal(now.program.ModTime()))
}

// same tells whether both are one file, or both none.
func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b)
}
