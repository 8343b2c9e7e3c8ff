package sandbox

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/seatbelt anew")

// The profiles for macOS are what was agreed. Nobody has run them.
func TestSeatbeltProfile(t *testing.T) {
	base := Profile{
		Level: Strict, Read: []string{"/opt/cli", `/w/a "b`, "/w/.nestor/door"}, Write: []string{"/w", "/w/.nestor/tmp/1"}, Hide: []string{"/w/.nestor"},
	}
	for name, change := range map[string]func(*Profile){
		"files": func(p *Profile) { p.Level = Files },
		"none":  func(p *Profile) { p.Network = None },
		"web":   func(p *Profile) { p.Network = Web },
		"all":   func(p *Profile) { p.Network = All },
	} {
		p := base
		change(&p)
		got := seatbelt(p, []string{"/usr", "/System"})
		file := filepath.Join("testdata", "seatbelt", name+".sb")
		if *update {
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is not what is in %s; if it should be, run this test with -update:\n%s", name, file, got)
		}
		if strings.Count(got, "(") != strings.Count(got, ")") {
			t.Errorf("%s: parentheses do not match", name)
		}
	}
}

// What is said last wins: what is hidden is denied behind what is around it, and what
// is in it and granted is allowed behind that.
func TestSeatbeltOrder(t *testing.T) {
	p := Profile{Level: Strict, Read: []string{"/r", "/w/readonly"}, Write: []string{"/w", "/w/.nestor/tmp"}, Hide: []string{"/w/.nestor"}}
	got := seatbelt(p, []string{"/usr"})
	at := -1
	for _, line := range []string{
		"(deny default)",
		`(allow file-read* process-exec (subpath "/usr"))`,
		`(allow file-read* process-exec (subpath "/r"))`,
		`(allow file-read* file-write* process-exec (subpath "/w"))`,
		`(deny file-write* (subpath "/w/readonly"))`,
		`(deny file-read-data file-read-xattr file-write* process-exec (subpath "/w/.nestor"))`,
	} {
		i := strings.Index(got, line+"\n")
		if i <= at {
			t.Errorf("%s is not there, or not in its place:\n%s", line, got)
		}
		at = i
	}
	if again := `(allow file-read* file-write* process-exec (subpath "/w/.nestor/tmp"))`; strings.LastIndex(got, again) < at {
		t.Errorf("%s is not behind what hides it:\n%s", again, got)
	}
	for _, never := range []string{"(remote ip", "(remote tcp", "(local ip", resolver, "(allow mach-lookup)", "(allow process-exec)", "launchservices", "appleevent"} {
		if strings.Contains(got, never) {
			t.Errorf("without a network it allows %s:\n%s", never, got)
		}
	}
}
