package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dfaf701a/nestor/claude"
)

func number(name string) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		panic(fmt.Sprintf("%s=%q: %v", name, os.Getenv(name), err))
	}
	return n
}

// line is one message of about that size, as the CLI prints it.
func line(size int) []byte {
	const form = `{"type":"assistant","message":{"model":"claude-opus-5-5","id":"msg_01AbCdEfGhIjKlMnOpQrStUv","type":"message","role":"assistant","content":[{"type":"text","text":"%s"}],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1200,"cache_creation_input_tokens":0,"cache_read_input_tokens":900,"output_tokens":42,"service_tier":"standard"}},"parent_tool_use_id":null,"session_id":"9f2d34e9-fc35-4ec0-8869-f98ebda9a118","uuid":"dc7bd5d1-1ab2-4a71-9938-974b83263c9e"}` + "\n"
	const short = `{"type":"assistant","message":{"id":"msg_01","role":"assistant","content":[{"type":"text","text":"%s"}]},"session_id":"s","uuid":"u"}` + "\n"
	f := form
	if size < len(form) {
		f = short
	}
	return fmt.Appendf(nil, f, strings.Repeat("word ", size)[:max(1, size-len(f)+2)])
}

// emit plays the CLI: it answers initialize, and a prompt with a stream.
func emit() error {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return nil
		}
		var m struct {
			Type    string `json:"type"`
			ID      string `json:"request_id"`
			Request struct{ Subtype string }
			UUID    string `json:"uuid"`
		}
		if err := json.Unmarshal(text, &m); err != nil {
			return err
		}
		switch m.Type {
		case "control_request":
			fmt.Printf(`{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{"commands":[],"agents":[],"models":[],"account":{},"output_style":"default","available_output_styles":[],"claude_code_version":"2.1.325"}}}`+"\n", m.ID)
		case "user":
			if err := flood(); err != nil {
				return err
			}
			fmt.Printf(`{"type":"result","subtype":"success","is_error":false,"result":"done","num_turns":1,"duration_ms":1,"duration_api_ms":1,"total_cost_usd":0,"usage":{},"session_id":"s","uuid":"u","user_message_uuid":%q}`+"\n", m.UUID)
		}
	}
}

// flood writes the messages as fast as the pipe takes them, one by one, as the
// CLI does.
func flood() error {
	one := line(number(sizeVariable))
	for range number(countVariable) {
		if _, err := os.Stdout.Write(one); err != nil {
			return err
		}
	}
	return nil
}

func report(f figures) error {
	f.RSSKB = peak()
	return json.NewEncoder(os.Stdout).Encode(f)
}

func options() claude.Options {
	exe, err := os.Executable()
	if err != nil {
		panic(err) // it runs
	}
	return claude.Options{Path: exe, Env: []string{roleVariable + "=emit"}}
}

// read is package claude, used as anybody would.
func read() error {
	var f figures
	var first time.Time
	var before, after runtime.MemStats
	for msg, err := range claude.Query(context.Background(), "go", options()) {
		if err != nil {
			return err
		}
		if f.Messages == 0 {
			first = time.Now()
			runtime.ReadMemStats(&before)
		}
		f.Messages++
		if m, ok := msg.(*claude.Assistant); ok {
			f.Chars += len(m.Content[0].(*claude.Text).Text)
		}
	}
	f.Seconds = time.Since(first).Seconds()
	runtime.ReadMemStats(&after)
	f.Alloc = int(after.TotalAlloc - before.TotalAlloc)
	return report(f)
}

// raw counts lines and does nothing else.
func raw() error {
	cmd, in, out, err := bare()
	if err != nil {
		return err
	}
	fmt.Fprintln(in, `{"type":"user","message":{"role":"user","content":"go"}}`)
	var f figures
	var first time.Time
	for {
		text, err := out.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			return err
		}
		if f.Messages == 0 {
			first = time.Now()
		}
		f.Messages++
		if bytes.HasPrefix(text, []byte(`{"type":"result"`)) {
			break
		}
	}
	f.Seconds = time.Since(first).Seconds()
	in.Close()
	if err := cmd.Wait(); err != nil {
		return err
	}
	return report(f)
}

// bare starts the emitter and has the handshake with it, by hand.
func bare() (*exec.Cmd, io.WriteCloser, *bufio.Reader, error) {
	cmd := exec.Command(options().Path)
	cmd.Env = append(os.Environ(), roleVariable+"=emit")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, nil, err
	}
	out := bufio.NewReaderSize(pipe, 256<<10)
	fmt.Fprintln(in, `{"type":"control_request","request_id":"1","request":{"subtype":"initialize"}}`)
	_, err = out.ReadSlice('\n')
	return cmd, in, out, err
}

// start measures what the SDK adds to the time until the CLI is ready.
func start() error {
	var ours, bares []time.Duration
	for range 50 { // in turns
		begin := time.Now()
		cmd, in, _, err := bare()
		if err != nil {
			return err
		}
		bares = append(bares, time.Since(begin))
		in.Close()
		if err := cmd.Wait(); err != nil {
			return err
		}
		begin = time.Now()
		s, err := claude.Start(context.Background(), options())
		if err != nil {
			return err
		}
		ours = append(ours, time.Since(begin))
		s.Close()
	}
	slices.Sort(ours)
	slices.Sort(bares)
	our, bare := ours[len(ours)/2], bares[len(bares)/2]
	fmt.Printf("Start until ready, medians of 50: %v by hand, %v with package claude: **%v** more.\n",
		bare.Round(10*time.Microsecond), our.Round(10*time.Microsecond), (our - bare).Round(10*time.Microsecond))
	return nil
}
