package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/broker"
	"github.com/dfaf701a/nestor/internal/engine"
	"github.com/dfaf701a/nestor/internal/eventlog"
)

// daemon is an embedded engine that others can dial, and that does what tasks
// say, until its input ends.
func daemon() error {
	port, err := strconv.Atoi(os.Getenv("PORT"))
	if err != nil {
		return err
	}
	engine.Scatter(os.Getenv("SCATTER") != "")
	if text := os.Getenv("TRY_FOR"); text != "" {
		tryFor, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		engine.SetTryFor(tryFor)
	}
	b, err := broker.Open(context.Background(), broker.Options{Dir: os.Getenv("DIR"), Listen: broker.Listen{Port: port, Token: token}})
	if err != nil {
		return err
	}
	defer b.Close()
	return work(b, engine.Options{Sole: true, Lease: time.Hour}) // no lease is waited for
}

// workFor works for brokers that are dialled.
func workFor() error {
	urls := strings.Split(os.Getenv("URLS"), ",")
	b, err := broker.Open(context.Background(), broker.Options{URL: os.Getenv("URLS"), Replicas: len(urls)})
	if err != nil {
		return err
	}
	defer b.Close()
	return work(b, short)
}

func work(b *broker.Broker, opts engine.Options) error {
	log := eventlog.New(b, eventlog.Options{})
	e, err := engine.New(context.Background(), b, log, opts)
	if err != nil {
		return err
	}
	logging, end := context.WithCancel(context.Background())
	var logs sync.WaitGroup
	defer logs.Wait()
	defer end()
	logs.Go(func() { log.Run(logging) })
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() { e.Run(ctx) })
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	fmt.Println("ready")
	execute := obey
	if os.Getenv("CHAOS") != "" {
		execute = wreck
	}
	w := slots(10)
	w.Execute = execute
	err = e.Work(ctx, w)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// obey does what the input of a task says. What it is to be killed with, it does
// not end the first time.
func obey(ctx context.Context, x *engine.Execution) nestor.Result {
	fmt.Println("began", x.Run().ID, x.Fence())
	first, what := x.Fence() == 1, x.Run().Task.Input
	block := func() nestor.Result {
		<-ctx.Done()
		return failure(nestor.Stopped)
	}
	switch what {
	case "hang":
		return block()
	case "hang once", "block", "cancel", "child":
		if first {
			return block()
		}
	case "parent":
		id, err := x.Spawn(ctx, nestor.Task{Input: "child"}, "the child", 0)
		if err != nil {
			return failure(nestor.Internal)
		}
		runs, err := x.Await(ctx, id)
		if err != nil || len(x.Run().Children) != 1 {
			return failure(nestor.Internal)
		}
		return success("with " + runs[0].Result.Output)
	case "ask", "ask before":
		answer, err := x.Ask(ctx, nestor.Ask{AskID: "q", Question: what})
		if err != nil {
			return failure(nestor.Internal)
		}
		if first {
			return block()
		}
		return success(answer.Decision)
	case "retry":
		if first {
			return failure(nestor.Connection)
		}
	}
	if name := os.Getenv("NAME"); name != "" {
		return success("by " + name)
	}
	return success(what)
}
