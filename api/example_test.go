package api_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

func ExampleClient() {
	ctx := context.Background()
	client := api.NewClient(".nestor/nestor.sock")
	defer client.Close()

	run, err := client.Submit(ctx, api.Submission{Task: nestor.Task{Agent: "reviewer", Input: "Review the last commit."}})
	if limit, ok := errors.AsType[*nestor.LimitError](err); ok {
		log.Fatalf("only %v of %s left", limit.Left, limit.Limit)
	}
	if err != nil {
		log.Fatal(err)
	}
	run, err = client.Wait(ctx, run.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.State, run.Result.Output)
}

// What a daemon says goes on where it was cut, whatever restarts.
func ExampleClient_Events() {
	ctx := context.Background()
	client := api.NewClient(".nestor/nestor.sock")
	defer client.Close()

	q := api.EventsQuery{Follow: true, Tree: true}
	for again := true; again; {
		again = false
		for event, err := range client.Events(ctx, "0199d3a2-7c1e-7b0a-8f3e-5a1c2b3d4e5f", q) {
			if errors.Is(err, api.ErrDisconnected) {
				again = true
				break
			}
			if err != nil {
				log.Fatal(err)
			}
			q.After = max(q.After, event.Head().Seq)
			if text, ok := event.(*nestor.AgentComplete); ok {
				fmt.Println(text.Content)
			}
		}
	}
}
