package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestTerminalOf(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if terminalOf(file) != nil || terminalOf(new(bytes.Buffer)) != nil {
		t.Error("a file or a buffer is a terminal")
	}
}
