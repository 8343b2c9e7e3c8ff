package claude

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// fakeFinder finds the files of a PATH: what LookPath returns, by name.
func fakeFinder(goos string, files map[string]string, asked *[]string) finder {
	return finder{goos: goos, home: "/home/u", lookPath: func(file string) (string, error) {
		*asked = append(*asked, file)
		if path, ok := files[file]; ok {
			return path, nil
		}
		return "", &exec.Error{Name: file, Err: exec.ErrNotFound}
	}}
}

func TestFind(t *testing.T) {
	shim := `C:\npm\claude.CMD`
	local := filepath.Join("/home/u", ".local", "bin", "claude.exe")
	tests := []struct {
		name  string
		goos  string
		files map[string]string
		want  string   // empty means not found
		says  []string // the error
	}{
		{"items 1, 177: nowhere", "linux", nil, "", []string{"Claude Code not found", "claude on PATH", "/usr/local/bin/claude", "npm install"}},
		{"item 98: on the PATH", "linux", map[string]string{"claude": "/bin/claude"}, "/bin/claude", nil},
		{"item 99: a batch file is a name like others elsewhere", "darwin", map[string]string{"claude": "/bin/claude.cmd"}, "/bin/claude.cmd", nil},
		{"item 91: npm's batch file is refused", "windows", map[string]string{"claude": shim}, "", []string{shim, "batch file"}},
		{"item 92: claude.exe is preferred", "windows", map[string]string{"claude": shim, "claude.exe": `C:\bin\claude.exe`}, `C:\bin\claude.exe`, nil},
		{"item 93: claude.exe.cmd is no program", "windows", map[string]string{"claude": shim, "claude.exe": `C:\npm\claude.exe.cmd`}, "", []string{shim}},
		{"item 94: also behind a script", "windows", map[string]string{"claude": `C:\npm\claude`, "claude.exe": `C:\bin\claude.EXE`}, `C:\bin\claude.EXE`, nil},
		{"item 101: the native installer's place", "windows", map[string]string{"claude": shim, local: local}, local, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var asked []string
			got, err := fakeFinder(tt.goos, tt.files, &asked).find()
			if got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			if tt.want == "" {
				wantSaid(t, err, tt.says...)
				if _, ok := errors.AsType[*NotFoundError](err); !ok {
					t.Errorf("error is a %T", err)
				}
			}
			if tt.goos != "windows" && tt.want != "" && !slices.Equal(asked, []string{"claude"}) {
				t.Errorf("looked for %q", asked)
			}
			for _, path := range asked {
				if tt.goos == "windows" && (strings.HasPrefix(path, "/usr") || strings.HasSuffix(path, "/claude")) {
					t.Errorf("looked for %q on Windows", path)
				}
			}
		})
	}
	t.Run("item 95: a batch file named on purpose is refused", func(t *testing.T) {
		f := fakeFinder("windows", map[string]string{shim: shim}, new([]string))
		f.override = shim
		_, err := f.find()
		wantSaid(t, err, shim, "batch file")
	})
	t.Run("item 100: Windows is told of the native installer", func(t *testing.T) {
		e := &NotFoundError{}
		if text := e.text("windows"); !strings.Contains(text, "install.ps1") || strings.Contains(text, "npm") {
			t.Errorf("got %q", text)
		}
		if text := e.text("linux"); !strings.Contains(text, "npm install") {
			t.Errorf("got %q", text)
		}
	})
}

func TestBatchFilesAreRefused(t *testing.T) {
	refused := []string{
		`claude.cmd`, `claude.bat`, `CLAUDE.CmD`, `.cmd`, `claude.cmd.`, `claude.cmd `, `claude.cmd. .`, `claude.cmd::$DATA`,
		`claude.cmd:stream`, `claude:evil.cmd`, `C:claude.cmd`, `C:/npm/claude.cmd`, `\\host\share\claude.cmd`, `C:\npm\claude.cmd\.`,
		`C:\npm\claude.cmd\x\..`, `C:\npm\claude.cmd\...`, `C:\npm\\claude.cmd`, `C:\npm\claude.cmd\`, `C:\npm\.\claude.cmd`,
		`C:\claude.cmd\. .\..`, `C:\npm/claude.bat/`, `claude.exe.cmd`, `C:\a.bat\claude.exe`,
	}
	for _, path := range refused {
		t.Run("item 96: "+path, func(t *testing.T) {
			wantSaid(t, refuseBatch("windows", path), "batch file")
			if err := refuseBatch("linux", path); err != nil {
				t.Errorf("item 99: refused on Linux: %v", err)
			}
		})
	}
	for _, path := range []string{`C:\bin\claude.exe`, `claude.EXE`, `C:\cmd\claude.exe`, `C:\x.cmdlets\claude.exe`, `claude`} {
		t.Run("item 97: "+path, func(t *testing.T) {
			if err := refuseBatch("windows", path); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestExplicitPathIsUsedAsIs(t *testing.T) {
	t.Run("item 3: nobody looks whether it is there", func(t *testing.T) {
		got, err := (&Options{Path: "/no/such/claude"}).program()
		if err != nil || got != "/no/such/claude" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func TestVersionWarning(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the fake CLI is a shell script")
	}
	warning := func(t *testing.T, version string) (string, string) {
		path := filepath.Join(t.TempDir(), "claude")
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+version+" (Claude Code)'\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		warnVersion(t.Context(), slog.New(slog.NewTextHandler(&out, nil)), path)
		return out.String(), path
	}
	t.Run("item 4: an old CLI is named with its path and what is needed", func(t *testing.T) {
		got, path := warning(t, "1.9.12")
		for _, want := range []string{"1.9.12", MinVersion, path} {
			if !strings.Contains(got, want) {
				t.Errorf("%q does not say %s", got, want)
			}
		}
	})
	for _, version := range []string{"2.0.0", "2.1.325", "10.0.0", "what?"} {
		t.Run("item 5: silent for "+version, func(t *testing.T) {
			if got, _ := warning(t, version); got != "" {
				t.Errorf("got %q", got)
			}
		})
	}
	t.Run("it can be skipped, and a missing CLI is no matter", func(t *testing.T) {
		warnVersion(context.Background(), slog.New(slog.DiscardHandler), "/no/such/claude")
		t.Setenv(SkipVersionVariable, "1")
		if got, _ := warning(t, "1.0.0"); got != "" {
			t.Errorf("got %q", got)
		}
	})
}
