package server_test

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/internal/server"
)

func TestSocketIsPrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes are made up on Windows")
	}
	path := filepath.Join(socket(t), "new", "nestor.sock") // both folders are made
	ln, err := server.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for name, want := range map[string]fs.FileMode{path: fs.ModeSocket | 0o600, filepath.Dir(path): fs.ModeDir | 0o700} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
		}
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is left behind")
	}
}

func TestDeadSocketIsReplaced(t *testing.T) {
	path := socket(t)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false) // as by a kill
	dead.Close()
	ln, err := server.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
}

func TestListenRefuses(t *testing.T) {
	dir := filepath.Dir(socket(t))
	used := filepath.Join(dir, "used")
	ln, err := server.Listen(used)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o770); err != nil { // umask does not apply
		t.Fatal(err)
	}
	long := filepath.Join(dir, strings.Repeat("x", 100))
	for path, want := range map[string]string{
		"":                        "the path of the socket is empty",
		used:                      "somebody listens there already",
		file:                      "a file that is no socket is there; remove it, or choose another path",
		long:                      "; choose a shorter folder",
		filepath.Join(open, "s"):  "others can write to the folder " + open + " (mode 0770); choose one that only you can write to",
		filepath.Join(file, "s"):  "not a directory",
		open:                      "a file that is no socket is there",
		filepath.Join(dir, "a/"):  "",
		filepath.Join(dir, "b/c"): "",
	} {
		ln, err := server.Listen(path)
		switch {
		case want == "" && err == nil:
			ln.Close()
		case want == "" || err == nil:
			t.Errorf("listening on %q: %v, want %q", path, err, want)
		case !strings.HasPrefix(err.Error(), "listening on "+path+": ") || !strings.Contains(err.Error(), want):
			t.Errorf("listening on %q: %v, want %q", path, err, want)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "precious" {
		t.Errorf("the file has become %q, %v", data, err)
	}
}
