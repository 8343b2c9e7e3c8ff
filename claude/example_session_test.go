package claude_test

import (
	"context"
	"fmt"
	"log"

	"github.com/dfaf701a/nestor/claude"
)

// What fills the context window.
func ExampleSession_ContextUsage() {
	ctx := context.Background()
	s, err := claude.Start(ctx, demo("answers"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	usage, err := s.ContextUsage(ctx, "summary")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.0f%% of %d tokens\n", usage.Percentage, usage.MaxTokens)
	for _, c := range usage.Categories {
		fmt.Println(c.Name, c.Tokens)
	}
	// Output:
	// 15% of 200000 tokens
	// Messages 12000
	// Free space 170000
}

// Another model for the rest of the session.
func ExampleSession_SetModel() {
	ctx := context.Background()
	s, err := claude.Start(ctx, demo("answers"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	if err := s.SetModel(ctx, "haiku"); err != nil {
		log.Fatal(err)
	}
	printAnswers(s.Prompt(ctx, "What is six times seven?"))
	// Output: 42
}

// A conversation that goes on in another process, and one in a copy of it.
func ExampleOptions_resume() {
	ctx := context.Background()
	ask := func(opts claude.Options) (session string) {
		for msg, err := range claude.Query(ctx, "Do you know me?", opts) {
			if err != nil {
				log.Fatal(err)
			}
			if m, ok := msg.(*claude.Result); ok {
				session = m.SessionID
				fmt.Println(m.Result)
			}
		}
		return session
	}
	opts := demo("resumes")
	first := ask(opts)
	opts.Resume = first
	fmt.Println("the same session:", ask(opts) == first)
	opts.Fork = true
	fmt.Println("the same session:", ask(opts) == first)
	// Output:
	// We have just met.
	// I remember you.
	// the same session: true
	// I remember you.
	// the same session: false
}

// The sessions that the CLI keeps on disk, without the CLI.
func ExampleTranscripts() {
	ctx := context.Background()
	t := claude.Transcripts{ConfigDir: "testdata/home"} // by default the user's own
	sessions, err := t.List(ctx, claude.ListOptions{Limit: 10})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range sessions {
		fmt.Println(s.Summary, "in", s.Dir)
		messages, err := t.Messages(ctx, s.ID, claude.MessageOptions{})
		if err != nil {
			log.Fatal(err)
		}
		for _, m := range messages {
			fmt.Printf("%s %s\n", m.Type, m.Message)
		}
	}
	// Output:
	// Fix the build in /src/shop
	// user {"role":"user","content":"why does the build fail?"}
	// assistant {"role":"assistant","content":[{"type":"text","text":"A semicolon is missing."}]}
}
