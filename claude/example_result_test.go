package claude_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/dfaf701a/nestor/claude"
)

// An answer that is a Go value.
func ExampleRun() {
	type review struct {
		Approve  bool     `json:"approve"`
		Problems []string `json:"problems" jsonschema:"each in one sentence"`
	}
	r, _, err := claude.Run[review](context.Background(), "Review main.go.", demo("reviews"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Approve, r.Problems)
	// Output: false [the file is not closed]
}

// What each turn cost. The results carry running totals; a Meter takes them
// apart, and counts tokens once however often messages repeat them.
func ExampleMeter() {
	ctx := context.Background()
	s, err := claude.Start(ctx, demo("spends"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	var meter claude.Meter
	for _, prompt := range []string{"Think.", "Think again."} {
		for msg, err := range s.Prompt(ctx, prompt) {
			if err != nil {
				log.Fatal(err)
			}
			meter.Add(msg)
		}
		fmt.Printf("turn: $%.2f, all: $%.2f, %d tokens read\n",
			meter.Last().CostUSD, meter.Total().CostUSD, meter.Main().InputTokens)
	}
	// Output:
	// turn: $0.02, all: $0.02, 1000 tokens read
	// turn: $0.02, all: $0.04, 3000 tokens read
}

// A turn that failed. The result is yielded first, then the error.
func ExampleResultError() {
	opts := demo("takes too many turns")
	opts.MaxTurns = 3
	for msg, err := range claude.Query(context.Background(), "Prove it.", opts) {
		if failed, ok := errors.AsType[*claude.ResultError](err); ok {
			fmt.Println("error:", failed.Text())
			return
		} else if err != nil {
			log.Fatal(err)
		}
		if m, ok := msg.(*claude.Result); ok {
			fmt.Println("result:", m.Subtype)
		}
	}
	// Output:
	// result: error_max_turns
	// error: Reached maximum number of turns (3)
}

// A CLI that ended by itself.
func ExampleProcessError() {
	for _, err := range claude.Query(context.Background(), "Think hard.", demo("crashes")) {
		if crash, ok := errors.AsType[*claude.ProcessError](err); ok {
			fmt.Println("exit code", crash.ExitCode)
			fmt.Println(strings.TrimSpace(crash.Stderr))
		}
	}
	// Output:
	// exit code 134
	// out of memory
}

// A machine without the CLI.
func ExampleNotFoundError() {
	_, err := claude.Start(context.Background(), claude.Options{Path: "/nowhere/claude"})
	if missing, ok := errors.AsType[*claude.NotFoundError](err); ok {
		for _, place := range missing.Tried {
			fmt.Println("looked at", place.Path)
		}
	}
	// Output: looked at /nowhere/claude
}

// A CLI that is too old, or too new, for a request. The session goes on.
func ExampleUnsupportedError() {
	ctx := context.Background()
	s, err := claude.Start(ctx, demo("answers"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	_, err = s.TaskOutput(ctx, "task-1")
	if old, ok := errors.AsType[*claude.UnsupportedError](err); ok {
		fmt.Println("no", old.Request, "in version", old.Version)
	}
	printAnswers(s.Prompt(ctx, "What is six times seven?"))
	// Output:
	// no get_task_output in version 2.1.325
	// 42
}
