package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic"
)

// figures is what a process with a crowd of agents measured.
type figures struct {
	Agents  int           `json:"agents"`
	Errors  int           `json:"errors"`
	First   string        `json:"first"` // error
	Took    time.Duration `json:"took"`  // for all conversations, the wait at the gate included
	Bash    time.Duration `json:"bash"`  // for another message of all, with a command
	New     state         `json:"new"`   // agents that were made
	Running state         `json:"running"`
	Idle    state         `json:"idle"` // agents that wait for their next message
}

// state is what a process holds, over what it held before there were agents.
type state struct {
	Heap       int `json:"heap"`     // bytes in use, stacks included
	Resident   int `json:"resident"` // bytes
	Files      int `json:"files"`    // descriptors
	Goroutines int `json:"goroutines"`
}

func (s state) over(base state) state {
	return state{s.Heap - base.Heap, s.Resident - base.Resident, s.Files - base.Files, s.Goroutines - base.Goroutines}
}

// look measures this process. What is not in use any more is given back first.
func look() state {
	for range 3 { // pools are emptied by the second
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd")
	return state{
		Heap: int(m.HeapAlloc + m.StackInuse), Resident: resident(os.Getpid()) << 10,
		Files: len(files), Goroutines: runtime.NumGoroutine(),
	}
}

// runCrowd is the process of a crowd: that many agents that remember, each with
// a folder of its own, have a conversation at the same time. It prints figures.
func runCrowd(ctx context.Context, url string, crowd int) error {
	dir, err := os.MkdirTemp("", "bench-api-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p := anthropic.New(anthropic.Options{BaseURL: url, APIKey: "key"})
	f := figures{Agents: crowd}

	// What is made once, for the first agent, belongs to nobody.
	first, err := newAgent(ctx, p, filepath.Join(dir, "first"))
	if err != nil {
		return err
	}
	if err := have(ctx, first, "Hello."); err != nil {
		return err
	}
	base := look()

	agents := make([]agent.Agent, crowd)
	for i := range agents {
		if agents[i], err = newAgent(ctx, p, filepath.Join(dir, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	f.New = look().over(base)

	var mu sync.Mutex // guards f
	var work sync.WaitGroup
	all := func(prompt string) {
		for i, a := range agents {
			work.Go(func() {
				err := have(ctx, a, prompt)
				if err == nil {
					err = check(filepath.Join(dir, strconv.Itoa(i), "out.txt"))
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					f.Errors++
					f.First = err.Error()
				}
			})
		}
	}
	begin := time.Now()
	all("Copy the file.")
	if err := ask(ctx, http.MethodGet, url); err != nil {
		return fmt.Errorf("waiting for all agents: %w; %d failed, one with: %s", err, f.Errors, f.First)
	}
	f.Running = look().over(base)
	if err := ask(ctx, http.MethodPost, url); err != nil {
		return err
	}
	work.Wait()
	f.Took = time.Since(begin)
	f.Idle = look().over(base)

	begin = time.Now()
	all("Run a command.")
	work.Wait()
	f.Bash = time.Since(begin)

	for _, a := range append(agents, first) {
		if err := a.Shutdown(ctx); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

func newAgent(ctx context.Context, p *anthropic.Provider, dir string) (agent.Agent, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "in.txt"), []byte("what there is to copy\n"), 0o600); err != nil {
		return nil, err
	}
	return p.Create(ctx, agent.Config{
		Name: filepath.Base(dir), Dir: dir, Instructions: "You copy files.", Model: "claude-opus-5-5", PermissionMode: "bypassPermissions",
		Credentials: map[string]string{"mode": "client"},
	})
}

// have has a conversation: one message, and all that follows from it.
func have(ctx context.Context, a agent.Agent, prompt string) error {
	done := false
	for m, err := range a.Handle(ctx, agent.NewMessage("bench", prompt)) {
		if err != nil {
			return err
		}
		if m.Metadata["sdk_type"] == "tool_result" && m.Metadata["is_error"] == true {
			return fmt.Errorf("a tool said %s", m.Content)
		}
		done = done || m.Metadata["sdk_type"] == "result" && m.Metadata["subtype"] == "success"
	}
	if !done {
		return errors.New("there was no result")
	}
	return nil
}

func check(path string) error {
	data, err := os.ReadFile(path)
	if err == nil && string(data) != "copied" {
		err = fmt.Errorf("%s says %q", path, data)
	}
	return err
}

// ask waits at the gate, or opens it.
func ask(ctx context.Context, method, url string) error {
	r, err := http.NewRequestWithContext(ctx, method, url+"/gate", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// resident is the memory of a process, in KB, as Linux tells.
func resident(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kb
		}
	}
	return 0
}
