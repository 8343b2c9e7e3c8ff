package claudetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// What every host gives the CLI to speak JSON lines with it, and to learn when
// it has nothing left to do.
var (
	hostArgs = []string{"--output-format=stream-json", "--verbose", "--input-format=stream-json"}
	hostEnv  = []string{"CLAUDE_CODE_SDK_READS_SESSION_STATE=1"}
)

// workDir stands for the working directory in scripts, steps and lines.
const workDir = "$WORK"

// Script returns the model's script for a conversation in cli's directory.
func (t *Transcript) Script(cli *CLI) string {
	return strings.ReplaceAll(t.Model, workDir, cli.Dir)
}

// Play has the conversation with cli, whose environment points it at a model
// that follows t.Script(cli), and replaces t.Lines with what was said, as it was
// said. A conversation that goes another way than t.Acts expect is an error,
// with the lines so far in t.Lines.
func (t *Transcript) Play(ctx context.Context, cli *CLI) error {
	t.Lines = nil
	for _, f := range t.Files {
		path := filepath.Join(cli.Dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			return err
		}
	}
	for i, act := range t.Acts {
		if err := t.playAct(ctx, cli, act); err != nil {
			return fmt.Errorf("act %d: %w", i+1, err)
		}
	}
	return nil
}

// player is the host of one act.
type player struct {
	t       *Transcript
	stdin   io.Writer
	lines   <-chan []byte // sent and closed by the goroutine that reads
	answers []Step        // the on and mcp steps so far
	work    string        // what $WORK stands for
	task    string        // what $TASK stands for: the task that started last
}

func (t *Transcript) playAct(ctx context.Context, cli *CLI, act Act) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := cli.Command(ctx, slices.Concat(hostArgs, act.Args)...)
	cmd.Env = slices.Concat(cmd.Env, hostEnv, t.Env)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	t.Lines = append(t.Lines, Line{From: Program, Note: strings.TrimSpace("start " + strings.Join(act.Args, " "))})
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		r := bufio.NewReader(stdout)
		for {
			line, err := r.ReadBytes('\n')
			if line = bytes.TrimSpace(line); len(line) > 0 {
				select {
				case lines <- line:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	p := &player{t: t, stdin: stdin, lines: lines, work: cli.Dir}
	err = p.steps(act.Steps)
	stdin.Close()
	if err == nil {
		err = p.await("") // what it says to the end
	} else {
		stop()
	}
	for range lines {
	} // the reader ends before Wait closes its pipe
	waitErr := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](waitErr); waitErr != nil && (!ok || ctx.Err() != nil) {
		err = errors.Join(err, waitErr)
	} else if ok {
		t.Lines = append(t.Lines, Line{From: Program, Note: fmt.Sprintf("exit %d", exit.ExitCode())})
	} else {
		t.Lines = append(t.Lines, Line{From: Program, Note: "exit 0"})
	}
	if err != nil && stderr.Len() > 0 {
		err = fmt.Errorf("%w; its stderr: %.2000s", err, stderr.String())
	}
	return err
}

// steps does what the host does.
func (p *player) steps(steps []Step) error {
	for i, s := range steps {
		switch s.Verb {
		case ">":
			if err := p.send(s.Payload); err != nil {
				return fmt.Errorf("step %d: %w", i+1, err)
			}
		case "<":
			if err := p.await(s.Kind); err != nil {
				return fmt.Errorf("step %d: %w", i+1, err)
			}
		default:
			p.answers = append(p.answers, s)
		}
	}
	return nil
}

func (p *player) send(line json.RawMessage) error {
	line = json.RawMessage(strings.NewReplacer(workDir, p.work, "$TASK", p.task).Replace(string(line)))
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("sending %.100s: %w", line, err)
	}
	p.t.Lines = append(p.t.Lines, Line{From: Host, JSON: line[:len(line):len(line)]})
	return nil
}

// await reads until a line of that kind, or to the end if kind is empty.
func (p *player) await(kind string) error {
	for line := range p.lines {
		if !json.Valid(line) {
			return fmt.Errorf("the CLI printed a line that is not JSON: %.200q", line)
		}
		p.t.Lines = append(p.t.Lines, Line{From: Claude, JSON: line})
		if err := p.answer(line); err != nil {
			return err
		}
		got := Kind(line)
		if got == "system/task_started" {
			var started struct {
				Task string `json:"task_id"`
			}
			if err := json.Unmarshal(line, &started); err != nil {
				return fmt.Errorf("reading %.200s: %w", line, err)
			}
			p.task = started.Task
		}
		if kind != "" && (got == kind || strings.HasPrefix(got, kind+"/")) {
			return nil
		}
	}
	if kind != "" {
		return fmt.Errorf("the CLI ended before it said %s", kind)
	}
	return nil
}

// answer answers a control request if a step says how.
func (p *player) answer(line []byte) error {
	var m struct {
		Type      string `json:"type"`
		RequestID string `json:"request_id"`
		Request   struct {
			Subtype    string `json:"subtype"`
			CallbackID string `json:"callback_id"`
			Server     string `json:"server_name"`
			Message    struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			} `json:"message"`
		} `json:"request"`
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Type != "control_request" {
		return nil // an unusual message is still recorded
	}
	payload, ok := json.RawMessage(nil), false
	for _, s := range p.answers { // the last one that fits
		switch {
		case s.Verb == "on" && (s.Kind == m.Request.Subtype || s.Kind == m.Request.Subtype+"/"+m.Request.CallbackID):
			payload, ok = s.Payload, true
		case s.Verb == "mcp" && m.Request.Subtype == "mcp_message" && s.Kind == m.Request.Server && s.Method == m.Request.Message.Method:
			reply := map[string]any{"jsonrpc": "2.0", "result": s.Payload}
			if m.Request.Message.ID != nil {
				reply["id"] = m.Request.Message.ID
			}
			text, err := json.Marshal(map[string]any{"mcp_response": reply})
			if err != nil {
				return err
			}
			payload, ok = text, true
		}
	}
	if !ok {
		return nil
	}
	text, err := json.Marshal(map[string]any{"type": "control_response", "response": map[string]any{
		"subtype": "success", "request_id": m.RequestID, "response": payload,
	}})
	if err != nil {
		return err
	}
	return p.send(text)
}
