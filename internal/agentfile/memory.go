package agentfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Memory says whose folder an agent keeps in what it learns.
type Memory string

// The memories, where Claude Code has them, as of 2.1.325.
const (
	UserMemory    Memory = "user"    // agent-memory/NAME in the user's folder
	ProjectMemory Memory = "project" // .claude/agent-memory/NAME in the project
	LocalMemory   Memory = "local"   // .claude/agent-memory-local/NAME in it, which is not for others
)

func readMemory(p *parser, f field) error {
	word, err := oneOf(f.value, []string{string(UserMemory), string(ProjectMemory), string(LocalMemory)})
	p.d.Memory = Memory(word)
	return err
}

// readIsolation reads where a run works.
func readIsolation(p *parser, f field) error {
	word, err := oneOf(f.value, []string{"worktree"})
	p.d.Worktree = err == nil && word == "worktree"
	return err
}

// chooseMemoryTools adds what an agent needs to keep a memory, if it names its
// tools.
func (d *Definition) chooseMemoryTools() {
	if d.Memory == "" {
		return
	}
	for _, tool := range []string{"Read", "Write", "Edit"} {
		if !slices.ContainsFunc(d.Tools, func(rule string) bool { name, _, _ := strings.Cut(rule, "("); return name == tool }) {
			d.Tools = append(d.Tools, tool)
			if tool != "Read" {
				d.MemoryTools = append(d.MemoryTools, tool)
			}
		}
	}
}

// memoryName returns the name of an agent as that of a folder, as Claude Code
// makes it.
func memoryName(name string) string {
	return strings.Map(func(c rune) rune {
		if c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			return c
		}
		return '-'
	}, name)
}

// MemoryPlace returns where the memory of the agent is: a folder, project or user,
// and the place in it. Both are empty if it has none.
func (d Definition) MemoryPlace(project, user string) (root, name string) {
	folder := "agent-memory"
	switch d.Memory {
	case "":
		return "", ""
	case UserMemory:
		root = user
	case LocalMemory:
		root, folder = project, filepath.Join(".claude", "agent-memory-local")
	default:
		root, folder = project, filepath.Join(".claude", folder)
	}
	if d.Source.Swarm != "" {
		folder = filepath.Join(folder, memoryName(d.Source.Swarm))
	}
	return root, filepath.Join(folder, memoryName(d.Name))
}

// MakeMemory returns the folder of the agent's memory, with no links on the way,
// which is made if it is not there; empty if the agent has none. In a project it
// fails for one that is reached by a link: what may be written there would be
// elsewhere.
func (d Definition) MakeMemory(project, user string) (string, error) {
	base, name := d.MemoryPlace(project, user)
	if name == "" {
		return "", nil
	}
	if base == "" {
		return "", fmt.Errorf("the memory of agent %s: there is no folder of the user: set HOME, or use memory: project", d.Name)
	}
	dir, err := makeMemory(base, name, d.Memory == UserMemory)
	if err != nil {
		return "", fmt.Errorf("the memory of agent %s: %w", d.Name, err)
	}
	return dir, nil
}

func makeMemory(base, name string, links bool) (string, error) {
	if links {
		dir := filepath.Join(base, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
		return filepath.EvalSymlinks(dir)
	}
	base, err := filepath.EvalSymlinks(base)
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return "", err
	}
	defer root.Close()
	dir := filepath.Join(base, name)
	err = root.MkdirAll(name, 0o755)
	real, realErr := filepath.EvalSymlinks(dir)
	if err = errors.Join(err, realErr); err != nil {
		return "", err
	}
	if real != dir {
		return "", fmt.Errorf("%s leads to %s; make it a folder of its own", dir, real)
	}
	return dir, nil
}

// Bounds of what of a memory is told at the start, as Claude Code has them.
const (
	maxMemoryLines = 200
	maxMemory      = 25 << 10 // bytes
	memoryFile     = "MEMORY.md"
)

// MemoryPrompt returns what an agent is told of its memory in dir: how to keep it,
// and the beginning of its MEMORY.md, unless there is none that is a regular file.
func (d Definition) MemoryPrompt(dir string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Your memory\n\nThe folder %s is yours: what you write there is there the next time that you work. ", dir)
	b.WriteString("It exists; write to it with Write and Edit.\n\n")
	fmt.Fprintf(&b, "- %s is told to you at the start of each conversation, its first %d lines and %d KB: keep it short, and put details into files beside it that it names.\n", memoryFile, maxMemoryLines, maxMemory>>10)
	b.WriteString("- Look there before you begin. Keep what will help you again: how things work here, what was decided and why, what went wrong and what solved it. Keep nothing that is true for this task alone, and no secrets.\n")
	b.WriteString("- Put right what has turned out wrong, and remove what is no longer true.\n")
	switch d.Memory {
	case UserMemory:
		b.WriteString("- It is there for all projects: keep what holds in any of them.\n")
	case ProjectMemory:
		b.WriteString("- It belongs to this project, and others who work on it read it too.\n")
	case LocalMemory:
		b.WriteString("- It belongs to this project on this machine, and is not for others.\n")
	}
	text, cut, err := readMemoryFile(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(text) == "":
		fmt.Fprintf(&b, "\n%s is empty so far.", memoryFile)
	case err != nil:
		fmt.Fprintf(&b, "\n%s cannot be read: %v.", memoryFile, plain(err))
	default:
		fmt.Fprintf(&b, "\n## %s\n\n%s", memoryFile, strings.TrimRight(text, "\n"))
	}
	if cut {
		fmt.Fprintf(&b, "\n\n[… the rest of %s is left out: make it shorter …]", memoryFile)
	}
	return b.String()
}

// readMemoryFile returns the beginning of MEMORY.md, and whether there is more. A
// link is followed inside of the memory alone.
func readMemoryFile(dir string) (text string, cut bool, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", false, err
	}
	defer root.Close()
	data, err := readRegular(root, memoryFile, maxMemory)
	if err != nil {
		return "", false, err
	}
	if cut = len(data) > maxMemory; cut {
		data = data[:maxMemory]
	}
	text = strings.ToValidUTF8(strings.ReplaceAll(string(data), "\x00", ""), string(utf8.RuneError))
	lines := strings.SplitAfterN(text, "\n", maxMemoryLines+1)
	if len(lines) > maxMemoryLines {
		if lines[maxMemoryLines] != "" {
			cut = true
		}
		text = strings.Join(lines[:maxMemoryLines], "")
	}
	return text, cut, nil
}
