package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxPrompt is how much is read of a prompt, and of what goes with it.
const maxPrompt = 512 << 10

// readText reads a file. It may be a pipe that nobody writes to: Ctrl-C ends that.
func readText(ctx context.Context, file string) (string, error) {
	return reading(ctx, func() (string, error) {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		return allOf(f, file)
	})
}

// readAll reads what a reader has, until Ctrl-C.
func readAll(ctx context.Context, r io.Reader, name string) (string, error) {
	return reading(ctx, func() (string, error) { return allOf(r, name) })
}

// reading reads until it is done or ctx ends. Then what reads is left behind, for the
// process ends: nothing else ends a read from a terminal.
func reading(ctx context.Context, read func() (string, error)) (string, error) {
	type content struct {
		text string
		err  error
	}
	done := make(chan content, 1)
	go func() {
		text, err := read()
		done <- content{text, err}
	}()
	select {
	case c := <-done:
		return c.text, c.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func allOf(r io.Reader, name string) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPrompt+1))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", name, err)
	}
	if len(data) > maxPrompt {
		return "", fmt.Errorf("reading %s: there are more than %d bytes: keep what is large in a file of its own, and name it for the agent to read", name, maxPrompt)
	}
	return string(data), nil
}

// checkOutput fails if a result cannot be written there: better now than when it is
// paid for.
func checkOutput(name string) error {
	if name == "" {
		return nil
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return fmt.Errorf("--output %s: it is a folder: name a file in it", name)
	}
	if dir := filepath.Dir(name); !isFolder(dir) {
		return fmt.Errorf("--output %s: there is no folder %s", name, dir)
	}
	return nil
}

func isFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// writeOutput writes a result where somebody wants it: into a file, which keeps its
// mode, or the file that a link leads to, whole or not at all; and to what is no file,
// such as a pipe, as it is.
func writeOutput(name, text string) error {
	info, err := os.Stat(name)
	switch {
	case strings.HasPrefix(filepath.Clean(name), "/dev/"): // which may lead to what this process has open
	case err == nil && info.Mode().IsRegular():
		if name, err = filepath.EvalSymlinks(name); err != nil {
			return err
		}
		return writeFile(name, text, info.Mode().Perm())
	case errors.Is(err, os.ErrNotExist):
		if _, err := os.Lstat(name); err != nil {
			return writeFile(name, text, 0o644)
		} // else it is a link to what is yet to be made
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, lines(text))
	return errors.Join(err, f.Close())
}

// writeFile writes text to a file, whole or not at all.
func writeFile(name, text string, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".nestor-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(lines(text))
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// lines has the last line of a text end as the others do.
func lines(text string) string {
	if text != "" && text[len(text)-1] != '\n' {
		text += "\n"
	}
	return text
}
