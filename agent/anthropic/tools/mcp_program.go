package tools

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor/agent"
)

// program is an MCP server that was started.
type program struct {
	cmd    *exec.Cmd
	stdin  *os.File // what it reads
	stdout *os.File // what it writes
	stderr *lastWords
	ended  <-chan struct{} // closed when it was waited for
}

// startProgram starts a server, in a process group of its own.
func (s *Servers) startProgram(config agent.MCPServer) (*program, error) {
	dir, err := filepath.Abs(s.opts.Dir)
	if err != nil {
		return nil, err
	}
	theirIn, ourIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close()
	ourOut, theirOut, err := os.Pipe()
	if err != nil {
		ourIn.Close()
		return nil, err
	}
	defer theirOut.Close()
	p := &program{stdin: ourIn, stdout: ourOut, stderr: new(lastWords)}
	own := s.opts.Env
	for key, value := range config.Env {
		own = append(own[:len(own):len(own)], key+"="+value)
	}
	p.cmd = s.opts.Command(config.Command, config.Args...)
	p.cmd.Dir, p.cmd.Env = dir, environ(s.opts.BaseEnv, own, dir, s.mark)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirIn, theirOut, p.stderr
	p.cmd.WaitDelay = grace // what it started may hold its standard error
	setAttributes(p.cmd)
	if p.ended, err = launch(p.cmd); err != nil {
		ourIn.Close()
		ourOut.Close()
		return nil, fmt.Errorf("starting %s: %w", config.Command, err)
	}
	return p, nil
}

// end closes its input, asks it to end, and kills it and its group: what it was
// told to is done within a few seconds.
func (p *program) end() {
	p.stdin.Close()
	p.stdout.Close()
	for _, kill := range []bool{false, true} {
		if p.wait(grace) {
			break
		}
		signalGroup(p.cmd.Process, false, kill)
	}
	ended := p.wait(2 * grace)
	signalGroup(p.cmd.Process, ended, true) // what it left
}

func (p *program) wait(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
		return false
	}
}

// said returns the end of what it wrote to its standard error.
func (p *program) said() string {
	p.wait(settle) // an end that is under way
	return p.stderr.String()
}

// lastWords keeps the end of what is written to it.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

const maxLastWords = 2_000

// Write keeps the end of data.
func (l *lastWords) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(data)
	data = data[max(0, n-maxLastWords):]
	l.text = append(l.text, data...)
	if len(l.text) > maxLastWords {
		l.text = append(l.text[:0], l.text[len(l.text)-maxLastWords:]...)
	}
	return n, nil
}

// String returns it as one line.
func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.ToValidUTF8(strings.Join(strings.Fields(string(l.text)), " "), "\uFFFD")
}
