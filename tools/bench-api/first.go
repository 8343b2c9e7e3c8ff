package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/internal/pool"
	"github.com/dfaf701a/nestor/scriptmodel"
)

const rounds = 15

// compareStarts measures the time from a prompt to the first text: with a CLI
// that is started for it, with one that package pool kept ready, and with a new
// agent of ours, in turns, so that noise meets them alike.
func compareStarts(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bench-api-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cli, err := claudetest.Install(dir)
	if err != nil {
		return err
	}
	version, err := claude.Version(ctx, cli.Path)
	if err != nil {
		return err
	}
	return withModel(ctx, 0, func(url string) error {
		opts := claude.Options{
			Path: cli.Path, Dir: cli.Dir, PartialMessages: true, ReplaceEnv: true,
			Env: append(cli.Env, scriptmodel.ClientEnv(url)...),
		}
		warm := pool.NewWarm(pool.WarmOptions{Max: 1})
		ran := make(chan error, 1)
		running, halt := context.WithCancel(ctx)
		go func() { ran <- warm.Run(running) }()
		defer func() { halt(); <-ran }()
		if err := warm.Keep(opts, 1); err != nil {
			return err
		}
		ours := anthropic.New(anthropic.Options{BaseURL: url, APIKey: "key"})
		var colds, warms, news []time.Duration
		for i := range rounds {
			if err := ready(ctx, warm); err != nil {
				return err
			}
			begin := time.Now()
			cold, err := firstText(begin, claude.Query(ctx, "Hello.", opts))
			if err != nil {
				return fmt.Errorf("cold: %w", err)
			}
			begin = time.Now()
			h, ok := warm.Take(ctx, opts)
			if !ok {
				return fmt.Errorf("no CLI was warm: %+v", warm.Stats())
			}
			taken, err := firstText(begin, h.Query(ctx, "Hello."))
			if err != nil {
				return fmt.Errorf("warm: %w", err)
			}
			if err := ready(ctx, warm); err != nil { // its start is not to meet ours
				return err
			}
			made, err := newAgentsFirstText(ctx, ours, filepath.Join(dir, fmt.Sprint("agent", i)))
			if err != nil {
				return fmt.Errorf("ours: %w", err)
			}
			colds, warms, news = append(colds, cold), append(warms, taken), append(news, made)
		}
		fmt.Printf("From the prompt to the first text, Claude Code %s; %d rounds, taken in turns.\n\n", version, rounds)
		fmt.Println("| agent | median | fastest | slowest |")
		fmt.Println("|---|---|---|---|")
		ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
		row := func(name string, d []time.Duration) {
			fmt.Printf("| %s | %.1f ms | %.1f ms | %.1f ms |\n", name, ms(median(d)), ms(slices.Min(d)), ms(slices.Max(d)))
		}
		row("CLI, started for the prompt", colds)
		row("CLI, warm", warms)
		row("a new agent of ours", news)
		cold, taken := median(colds).Seconds()/median(news).Seconds(), median(warms).Seconds()/median(news).Seconds()
		fmt.Printf("\nOurs is **%.0f times** as fast as a CLI started for the prompt, and %.0f times as fast as a warm one.\n\n", cold, taken)
		if cold < atLeast {
			return fmt.Errorf("ours is %.0f times as fast as a cold CLI, and has to be %.0f times", cold, atLeast)
		}
		return nil
	})
}

// newAgentsFirstText makes an agent, and returns how long that and its first
// text took.
func newAgentsFirstText(ctx context.Context, p *anthropic.Provider, dir string) (took time.Duration, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, err
	}
	begin := time.Now()
	a, err := p.Create(ctx, agent.Config{Name: "ada", Dir: dir, Model: "claude-opus-5-5", Credentials: map[string]string{"partial": "true"}})
	if err != nil {
		return 0, err
	}
	for m, err := range a.Handle(ctx, agent.NewMessage("bench", "Hello.")) {
		if err != nil {
			return 0, err
		}
		if took == 0 && m.Metadata["sdk_type"] == "partial_text" {
			took = time.Since(begin)
		}
	}
	if took == 0 {
		return 0, errors.New("the answer had no text")
	}
	return took, a.Shutdown(ctx)
}

// ready waits until a CLI is warm.
func ready(ctx context.Context, warm *pool.Warm) error {
	for warm.Stats().Idle == 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for a warm CLI: %w", context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// firstText reads an answer to its end, and returns how long after begin its
// first text came.
func firstText(begin time.Time, answer iter.Seq2[claude.Message, error]) (took time.Duration, err error) {
	for msg, err := range answer {
		if err != nil {
			return 0, err
		}
		if e, ok := msg.(*claude.StreamEvent); ok && took == 0 && e.Delta.Text != "" {
			took = time.Since(begin)
		}
	}
	if took == 0 {
		return 0, errors.New("the answer had no text")
	}
	return took, nil
}

func median[T int | time.Duration](values []T) T {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}
