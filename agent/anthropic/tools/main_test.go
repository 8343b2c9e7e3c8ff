package tools

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv("MCP_TEST_SERVER"); kind != "" {
		playServer(kind)
		return
	}
	goleak.VerifyTestMain(m)
}

// secret is what must not be told.
const secret = "the-secret-outside"

// newSet returns a set for a new folder with files, which are given as name and
// content by turns, and closes it with the test.
func newSet(t testing.TB, opts Options, files ...string) *Set {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := 0; i+1 < len(files); i += 2 {
		put(t, s, files[i], files[i+1])
	}
	return s
}

// put writes a file below the folder of the set, behind its back.
func put(t testing.TB, s *Set, name, content string) {
	t.Helper()
	path := filepath.Join(s.folders[0].path, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// get reads a file below the folder of the set.
func get(t testing.TB, s *Set, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.folders[0].path, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func tool(t testing.TB, s *Set, name string) Tool {
	t.Helper()
	for _, tool := range s.Tools() {
		if tool.Name == name {
			return tool
		}
	}
	t.Fatalf("there is no tool %s", name)
	panic("unreachable")
}

// in is an input.
type in map[string]any

// run calls a tool.
func run(t testing.TB, s *Set, name string, input in) (Result, error) {
	t.Helper()
	return runWith(t.Context(), t, s, name, input)
}

func runWith(ctx context.Context, t testing.TB, s *Set, name string, input in) (Result, error) {
	t.Helper()
	data, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	return tool(t, s, name).Run(ctx, data)
}

// must calls a tool, which must not fail, and returns its text with W for the
// folder.
func must(t testing.TB, s *Set, name string, input in) string {
	t.Helper()
	result, err := run(t, s, name, input)
	if err != nil {
		t.Fatalf("%s %v: %v", name, input, err)
	}
	return strings.ReplaceAll(result.Text, s.folders[0].path, "W")
}

// refused calls a tool, which must fail, and returns the error's text with W
// for the folder.
func refused(t testing.TB, s *Set, name string, input in) string {
	t.Helper()
	result, err := run(t, s, name, input)
	if err == nil {
		t.Fatalf("%s %v was done: %q", name, input, clip(result.Text, 500))
	}
	return strings.ReplaceAll(err.Error(), s.folders[0].path, "W")
}

// equal compares texts.
func equal(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got\n%s\nwant\n%s", what, clip(got, 3000), clip(want, 3000))
	}
}

// contains looks for a text in another.
func contains(t testing.TB, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: got\n%s\nwhich does not hold\n%s", what, clip(got, 3000), want)
	}
}

// survivors returns the processes that have what in their environment.
func survivors(t testing.TB, what string) (list []string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the environment of processes can only be read on Linux")
	}
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if env, err := os.ReadFile(file); err == nil && strings.Contains(string(env), what) {
			name, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			list = append(list, strings.ReplaceAll(string(name), "\x00", " "))
		}
	}
	return list
}

// none fails if a process with what in its environment is left. One that was
// killed may take a moment to be gone.
func none(t testing.TB, what string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		left := survivors(t, what)
		if left == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there: %q", left)
		}
		runtime.Gosched()
	}
}
