package claude_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"log"
	"slices"

	"github.com/dfaf701a/nestor/claude"
)

// The smallest program. In yours, write claude.Options{} where the examples
// say demo: that is a stand-in for the CLI, so that they run anywhere.
func Example() {
	for msg, err := range claude.Query(context.Background(), "What is six times seven?", demo("answers")) {
		if err != nil {
			log.Fatal(err)
		}
		if m, ok := msg.(*claude.Assistant); ok {
			fmt.Println(m.Text())
		}
	}
	// Output: 42
}

// One prompt, and a look at what comes back.
func ExampleQuery() {
	ctx := context.Background()
	opts := demo("answers")
	opts.SystemPrompt.Text = "You answer with a number."
	opts.Tools = []string{} // none at all
	opts.MaxTurns = 1

	for msg, err := range claude.Query(ctx, "What is six times seven?", opts) {
		if err != nil {
			log.Fatal(err)
		}
		switch m := msg.(type) {
		case *claude.Assistant:
			fmt.Println("Claude says", m.Text())
		case *claude.Result:
			fmt.Println("turns:", m.NumTurns)
		}
	}
	// Output:
	// Claude says 42
	// turns: 1
}

// Prompts that are known beforehand, each answered in its turn.
func ExampleQueryAll() {
	prompts := slices.Values([]claude.UserMessage{
		{Text: "My name is Ada."},
		{Text: "What is my name?"},
	})
	for msg, err := range claude.QueryAll(context.Background(), prompts, demo("remembers")) {
		if err != nil {
			log.Fatal(err)
		}
		if m, ok := msg.(*claude.Result); ok {
			fmt.Println(m.Result)
		}
	}
	// Output:
	// Nice to meet you, Ada.
	// Your name is Ada.
}

// A conversation: the second prompt depends on the answer to the first.
func ExampleSession_Prompt() {
	ctx := context.Background()
	s, err := claude.Start(ctx, demo("remembers"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	for _, prompt := range []string{"My name is Ada.", "What is my name?"} {
		for msg, err := range s.Prompt(ctx, prompt) {
			if err != nil {
				log.Fatal(err)
			}
			if m, ok := msg.(*claude.Assistant); ok {
				fmt.Println(m.Text())
			}
		}
	}
	// Output:
	// Nice to meet you, Ada.
	// Your name is Ada.
}

// Settled also waits for what the prompt left running in the background.
func ExampleSession_Ask() {
	ctx := context.Background()
	s, err := claude.Start(ctx, demo("works in the background"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	for msg, err := range s.Ask(ctx, claude.UserMessage{Text: "Run the tests."}, claude.Settled) {
		if err != nil {
			log.Fatal(err)
		}
		switch m := msg.(type) {
		case *claude.Result:
			fmt.Println(m.Result)
		case *claude.TaskNotification:
			fmt.Println("task:", m.Status, m.Summary)
		}
	}
	// Output:
	// The tests run in the background.
	// task: completed all pass
	// All tests pass.
}

// Text for Claude while it works, and an end to it: an interrupted turn has a
// result like any other, and is no error. (Send and Interrupt can fail.)
func ExampleSession_Interrupt() {
	ctx := context.Background()
	s, err := claude.Start(ctx, demo("counts"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	for msg, err := range s.Prompt(ctx, "Count to a million.") {
		if err != nil {
			log.Fatal(err)
		}
		switch m := msg.(type) {
		case *claude.Assistant:
			fmt.Println(m.Text())
			if m.Text() == "one, two, three" {
				s.Send(ctx, claude.UserMessage{Text: "In French, please."})
			} else {
				s.Interrupt(ctx)
			}
		case *claude.Result:
			fmt.Println("interrupted:", m.Interrupted())
		}
	}
	// Output:
	// one, two, three
	// quatre, cinq, six
	// interrupted: true
}

// A prompt with a picture.
func ExampleUserMessage() {
	ctx := context.Background()
	var file bytes.Buffer
	png.Encode(&file, image.NewGray(image.Rect(0, 0, 8, 8)))
	picture, err := claude.NewImage(file.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	s, err := claude.Start(ctx, demo("looks"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	m := claude.UserMessage{Text: "What do you see?", Blocks: []claude.Block{picture}}
	for msg, err := range s.Ask(ctx, m, claude.Answered) {
		if err != nil {
			log.Fatal(err)
		}
		if m, ok := msg.(*claude.Assistant); ok {
			fmt.Println(m.Text())
		}
	}
	// Output: I see one image/png.
}

// Text on the terminal as it is written.
func ExampleStreamEvent() {
	opts := demo("streams")
	opts.PartialMessages = true
	for msg, err := range claude.Query(context.Background(), "Tell me a story.", opts) {
		if err != nil {
			log.Fatal(err)
		}
		switch m := msg.(type) {
		case *claude.StreamEvent:
			if m.ParentToolUseID == "" { // not a subagent's
				fmt.Print(m.Delta.Text)
			}
		case *claude.Result:
			fmt.Println()
		}
	}
	// Output: Once upon a time.
}

// A CLI that is started before there is a prompt answers it sooner.
func ExampleWarm() {
	ctx := context.Background()
	warm, err := claude.Warm(ctx, demo("answers"))
	if err != nil {
		log.Fatal(err)
	}
	defer warm.Close()

	for msg, err := range warm.Query(ctx, "What is six times seven?") {
		if err != nil {
			log.Fatal(err)
		}
		if m, ok := msg.(*claude.Result); ok {
			fmt.Println(m.Result)
		}
	}
	// Output: 42
}
