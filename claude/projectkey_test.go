package claude

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestPathKey(t *testing.T) {
	dashes := func(n int) string { return strings.Repeat("-", n) }
	as := func(n int) string { return strings.Repeat("a", n) }
	for _, test := range []struct{ name, path, want string }{
		{"item 374: plain", "/home/me/my.project_1", "-home-me-my-project-1"},
		{"item 374: Windows", `C:\Users\me`, "C--Users-me"},
		{"item 374: empty", "", ""},
		{"item 374: 200 characters are kept", "/" + as(199), "-" + as(199)},
		{"item 374: more get a hash", "/" + as(200), "-" + as(199) + "-b6ymvl"},
		{"item 374: much more", "/" + as(250), "-" + as(199) + "-feo44x"},
		{"item 359: a unit of UTF-16 is a dash", "/x/😀é", "-x----"},
		{"item 359: long with other scripts", "/home/" + strings.Repeat("日本", 120), "-home-" + dashes(194) + "-wy8iw9"},
		{"item 359: long outside the basic plane", "/x/" + strings.Repeat("😀", 120), "-x-" + dashes(197) + "-rq304y"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := pathKey(test.path); got != test.want {
				t.Errorf("pathKey(%q) = %q, want %q", test.path, got, test.want)
			}
		})
	}
	t.Run("item 374: the hash of nothing is 0", func(t *testing.T) {
		if got := hashSuffix(0); got != "0" {
			t.Errorf("got %q", got)
		}
		if got := hashSuffix(-1 << 31); got != "zik0zk" {
			t.Errorf("the smallest hash is %q", got)
		}
	})
}

func TestProjectKey(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Run("item 359: empty means the current directory", func(t *testing.T) {
		if got, want := ProjectKey(""), ProjectKey(dir); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("item 359: relative means below it", func(t *testing.T) {
		if got, want := ProjectKey("sub"), ProjectKey(dir)+"-sub"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("item 359: composed form", func(t *testing.T) {
		if got, want := ProjectKey("/none/e\u0301"), "-none--"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("item 359: links are resolved", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("no links on Windows")
		}
		if err := os.Mkdir("real", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("real", "link"); err != nil {
			t.Fatal(err)
		}
		if got, want := ProjectKey("link"), ProjectKey("real"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestProjectNameOverride(t *testing.T) {
	for name, want := range map[string]string{
		"shared_1": "shared_1", "": "", "a/b": "", "..": "", "NUL": "", "com1": "", strings.Repeat("a", 65): "",
	} {
		t.Setenv("CLAUDE_CODE_PROJECT_DIR_NAME", name)
		if got := projectNameOverride(); got != want {
			t.Errorf("override %q gives %q, want %q", name, got, want)
		}
	}
}

func TestClaudeConfigDir(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	for _, test := range []struct{ name, given, env, want string }{
		{"item 311: given wins", "/given", "/env", "/given"},
		{"item 311: empty falls back to the environment", "", "/env", "/env"},
		{"item 311: and then to the home", "", "", filepath.Join(home, ".claude")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("CLAUDE_CONFIG_DIR", test.env)
			if got, err := claudeConfigDir(test.given); got != test.want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}
