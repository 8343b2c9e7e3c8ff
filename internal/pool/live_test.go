package pool

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/internal/soak"
	"github.com/dfaf701a/nestor/scriptmodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Fifty real CLIs are taken and used, one after the other.
func TestLiveCycles(t *testing.T) {
	cli := claudetest.Real(t)
	model := scriptmodel.Start(t, `rules: [{repeat: true, turns: [{text: "You said: {{.Prompt}}"}]}]`)
	opts := claude.Options{
		Path: cli.Path, Dir: cli.Dir, ReplaceEnv: true, Env: append(cli.Env, scriptmodel.ClientEnv(model.URL)...),
		NoPersistence: true,
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	ready := make(chan struct{}, 100)
	w := NewWarm(WarmOptions{Log: slog.New(logged{level: slog.LevelDebug, add: func(r slog.Record) {
		if r.Message == "cli is warm" {
			ready <- struct{}{}
		}
	}})})
	running, end := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(running) }()
	if err := w.Keep(opts, 2); err != nil {
		t.Fatal(err)
	}
	cycles := soak.Of(15, 50)
	var early uint64
	for i := range cycles {
		select {
		case <-ready:
		case <-ctx.Done():
			t.Fatalf("cycle %d: %v", i, ctx.Err())
		}
		h, ok := w.Take(t.Context(), opts)
		if !ok {
			t.Fatalf("cycle %d: there was none to take: %+v", i, w.Stats())
		}
		if i == 0 && runtime.GOOS == "linux" && resident(h.Pid()) < 10<<20 {
			t.Errorf("an idle CLI holds %d bytes", resident(h.Pid()))
		}
		if got, want := answer(ctx, t, h, fmt.Sprint("cycle ", i)), fmt.Sprint("You said: cycle ", i); got != want {
			t.Errorf("answered %q, want %q", got, want)
		}
		if i == 10 {
			early = heap()
		}
	}
	if late := heap(); late > early+4<<20 {
		t.Errorf("the heap grew from %d to %d bytes", early, late)
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := w.Stats(); s.Hits != cycles || s.Misses != 0 || s.Idle != 0 || s.Saved < time.Duration(cycles)*10*time.Millisecond {
		t.Errorf("got %+v", s)
	}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		if env, err := os.ReadFile(file); err == nil && bytes.Contains(env, []byte(cli.Home)) {
			t.Errorf("%s is left", filepath.Dir(file))
		}
	}
}

// answer has a prompt answered and the CLI ended.
func answer(ctx context.Context, t *testing.T, h *claude.Warmed, prompt string) (text string) {
	for msg, err := range h.Query(ctx, prompt) {
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := msg.(*claude.Result); ok {
			text = r.Result
		}
	}
	return text
}

// heap returns the bytes that are in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
