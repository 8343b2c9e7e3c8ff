package anthropic_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// An agent that remembers, with two messages. In yours, leave BaseURL empty and
// give your key: here the model is one that follows a script.
func ExampleProvider() {
	url, stop := model(`
rules:
  - when: {user: write}
    turns:
      - tools: [{name: Write, input: {file_path: hello.txt, content: "Hello."}}]
      - text: It is written.
  - turns: [{text: "You asked me to write hello.txt."}]`)
	defer stop()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	p := anthropic.New(anthropic.Options{
		APIKey:  "key",
		BaseURL: url,
		Records: anthropic.DirRecords(filepath.Join(dir, "sessions")), // so that sessions outlive the process
	})
	a, err := p.Create(ctx, agent.Config{
		Name:         "ada",
		Dir:          dir,
		Instructions: "You are a careful engineer.",
		Limits:       agent.Limits{MaxTurns: 20},
		Credentials:  map[string]string{"mode": "client"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Shutdown(ctx)

	for _, prompt := range []string{"Please write hello.txt.", "What did I ask for?"} {
		for m, err := range a.Handle(ctx, agent.NewMessage("me", prompt)) {
			if err != nil {
				log.Fatal(err)
			}
			switch m.Metadata["sdk_type"] {
			case "tool_use":
				fmt.Println(m.Metadata["tool_name"])
			case "result":
				fmt.Println(m.Content)
			}
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "hello.txt"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", data)
	// Output:
	// Write
	// It is written.
	// You asked me to write hello.txt.
	// Hello.
}

// model starts a model that follows a script.
func model(script string) (url string, stop func()) {
	parsed, err := scriptmodel.ParseScript("example", []byte(script))
	if err != nil {
		log.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- scriptmodel.New(parsed, scriptmodel.Options{}).Serve(ctx, ln) }()
	return "http://" + ln.Addr().String(), func() {
		end()
		if err := <-served; err != nil {
			log.Fatal(err)
		}
	}
}
