package pool

import (
	"context"
	"io"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/claude"
)

// Every field, and every field of what fields hold, is changed in turn: each
// change has to be an identity of its own, or be refused by the field's name.
func TestEveryFieldCounts(t *testing.T) {
	var opts claude.Options
	none, err := identify(opts)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[identity]string{none: "no change"}
	refused := map[string]bool{}
	var fields []string
	change(t, "", reflect.ValueOf(&opts).Elem(), func(field string) {
		top := strings.FieldsFunc(field, func(r rune) bool { return strings.ContainsRune(".[(", r) })[0]
		fields = append(fields, top)
		id, err := identify(opts)
		if err != nil {
			if !strings.HasPrefix(err.Error(), top) {
				t.Errorf("%s is refused with %q, which does not name it", field, err)
			}
			refused[top] = true
			return
		}
		if other, ok := seen[id]; ok {
			t.Errorf("%s makes no difference to %s", field, other)
		}
		seen[id] = field
	})
	for f := range reflect.TypeFor[claude.Options]().Fields() {
		if !slices.Contains(fields, f.Name) {
			t.Errorf("%s was not changed", f.Name)
		}
		switch f.Name {
		case "Path", "SessionID", "Resume", "Continue", "Hooks", "Agents", "Store":
			if !refused[f.Name] {
				t.Errorf("%s was not refused", f.Name)
			}
		case "CanUseTool", "OnFrame", "Wrap":
			if refused[f.Name] {
				t.Errorf("%s was refused", f.Name)
			}
		default:
			if refused[f.Name] != (f.Type.Kind() == reflect.Func) {
				t.Errorf("%s: refused is %t", f.Name, refused[f.Name])
			}
		}
	}
	if len(seen) < 150 {
		t.Errorf("only %d changes were tried", len(seen))
	}
}

// change gives v one other value after the other, its parts included, and
// calls changed with the field that was. In the end v is as it was.
func change(t *testing.T, field string, v reflect.Value, changed func(field string)) {
	before := reflect.ValueOf(v.Interface())
	if !before.IsValid() { // a nil interface
		before = reflect.Zero(v.Type())
	}
	defer v.Set(before)
	set := func(how string, to reflect.Value) {
		v.Set(to)
		changed(field + how)
	}
	switch v.Kind() {
	case reflect.Bool:
		set("", reflect.ValueOf(true).Convert(v.Type()))
	case reflect.String, reflect.Int, reflect.Int64, reflect.Uint8, reflect.Float64:
		one := reflect.ValueOf(byte('1'))
		if v.Kind() == reflect.String {
			one = reflect.ValueOf("1")
		}
		set("", one.Convert(v.Type()))
	case reflect.Struct:
		for f, part := range v.Fields() {
			if f.IsExported() {
				change(t, field+"."+f.Name, part, changed)
			}
		}
	case reflect.Pointer:
		set("(zero)", reflect.New(v.Type().Elem()))
		change(t, field, v.Elem(), changed)
	case reflect.Slice:
		set("(empty)", reflect.MakeSlice(v.Type(), 0, 0))
		set("(one)", reflect.MakeSlice(v.Type(), 1, 1))
		change(t, field+"[0]", v.Index(0), changed)
		set("(two)", reflect.MakeSlice(v.Type(), 2, 2))
	case reflect.Map:
		set("(empty)", reflect.MakeMap(v.Type()))
		for _, key := range []string{"a", "b"} {
			m, k := reflect.MakeMap(v.Type()), reflect.ValueOf(key)
			value := reflect.New(v.Type().Elem()).Elem()
			m.SetMapIndex(k, value)
			set("("+key+")", m)
			change(t, field+"["+key+"]", value, func(field string) {
				m.SetMapIndex(k, value)
				changed(field)
			})
		}
	case reflect.Interface:
		var all []any
		switch v.Type() {
		case reflect.TypeFor[claude.MCPServer]():
			all = []any{&claude.StdioServer{}, &claude.SSEServer{}, &claude.HTTPServer{}, &claude.InProcess{}}
		case reflect.TypeFor[claude.Store]():
			all = []any{&claude.MemoryStore{}}
		default:
			t.Fatalf("%s: no %s is known: add one", field, v.Type())
		}
		for _, one := range all {
			set("("+reflect.TypeOf(one).String()+")", reflect.ValueOf(one))
			if v.Type() == reflect.TypeFor[claude.MCPServer]() {
				change(t, field+v.Elem().Type().String(), v.Elem().Elem(), changed)
			}
		}
	case reflect.Func:
		set("", reflect.MakeFunc(v.Type(), func([]reflect.Value) (zero []reflect.Value) {
			for out := range v.Type().Outs() {
				zero = append(zero, reflect.Zero(out))
			}
			return zero
		}))
	default:
		t.Fatalf("%s: a %s is not known: add it", field, v.Type())
	}
}

func TestWhatCannotBeComparedIsRefused(t *testing.T) {
	for _, test := range []struct {
		opts claude.Options
		want string
	}{
		{claude.Options{Stderr: func(string) {}}, "Stderr: a func(string) cannot be compared"},
		{claude.Options{Hooks: claude.Hooks{Setup: make([]claude.Hook[claude.SetupInput, claude.ContextOutput], 1)}}, "Hooks.Setup: "},
		{claude.Options{Hooks: claude.Hooks{Stop: []claude.Hook[claude.StopInput, claude.ContextOutput]{{Match: claude.Exactly()}}}}, "Hooks.Stop[0].Match.err: "},
		{claude.Options{Resume: "x"}, "Resume: "},
		{claude.Options{Path: "claude"}, "Path: "},
		{claude.Options{Spawn: func(context.Context, claude.Command) (claude.Process, error) { return nil, nil }}, "Spawn: "},
	} {
		w := NewWarm(WarmOptions{})
		if err := w.Keep(test.opts, 1); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("Keep says %v, want %s…", err, test.want)
		}
		if _, ok := w.Take(t.Context(), test.opts); ok || w.Stats().Misses != 1 {
			t.Errorf("%s: it was taken", test.want)
		}
	}
}

func TestEqualOptionsAreOne(t *testing.T) {
	build := func() claude.Options {
		yes := true
		return claude.Options{
			Sandbox:    &claude.Sandbox{Enabled: &yes},
			MCPServers: map[string]claude.MCPServer{"a": &claude.StdioServer{Command: "c"}, "b": &claude.HTTPServer{URL: "u"}},
			Agents:     map[string]claude.AgentDefinition{"x": {Prompt: "p"}, "y": {}, "z": {}},
		}
	}
	first, err := identify(build())
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // maps come in any order
		if again, _ := identify(build()); again != first {
			t.Fatal("equal options have two identities")
		}
	}
}

func TestResidentCountsChildren(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory is read from /proc")
	}
	// A shell, not this process, is measured: between two looks at it nothing
	// is collected or given back. The child is large: the kernel's own count of a
	// process's pages is off by some dozens on each processor.
	feed, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	cmd := exec.Command("sh", "-c", `sh -c "$0" <&3; echo; read end`,
		`line=$(head -c 16000000 /dev/zero | tr '\0' x); echo; read end`)
	cmd.ExtraFiles = []*os.File{feed}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	feed.Close()
	io.ReadFull(out, make([]byte, 1)) // the child is what it will be
	both := resident(cmd.Process.Pid)
	hold.Close()
	io.ReadFull(out, make([]byte, 1)) // the child has ended
	alone := resident(cmd.Process.Pid)
	in.Close()
	cmd.Wait()
	if alone > 8<<20 || both < 12<<20 {
		t.Errorf("a shell holds %d bytes, with a child of 16 MB %d", alone, both)
	}
	if gone := resident(cmd.Process.Pid); gone != 0 {
		t.Errorf("a process that ended holds %d bytes", gone)
	}
}
