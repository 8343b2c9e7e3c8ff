// Command record has the conversations of transcripts anew, with the real
// Claude CLI and a scripted model, and writes down what was said. It is for
// maintainers: 'make transcripts' runs it when the CLI's version changes.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/scriptmodel"
)

func main() {
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "usage: record FILE.txtar …\n\nRecords the conversations in the files with the CLI that 'make tools' installed.\n")
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	failed := 0
	for _, path := range flag.Args() {
		if err := record(ctx, path); err != nil {
			fmt.Fprintf(os.Stderr, "record: %s: %v\n", path, err)
			failed++
		}
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func record(ctx context.Context, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	t, err := claudetest.ParseTranscript(path, data)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "record-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cli, err := claudetest.Install(dir)
	if err != nil {
		return err
	}
	if t.Version, err = claude.Version(ctx, cli.Path); err != nil {
		return err
	}
	script, err := scriptmodel.ParseScript(path+": section model", []byte(t.Script(cli)))
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	srv := scriptmodel.New(script, scriptmodel.Options{})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, ln) }()
	defer func() { stop(); <-served }()
	cli.Env = append(cli.Env, scriptmodel.ClientEnv("http://"+ln.Addr().String())...)
	if err := t.Play(ctx, cli); err != nil {
		for _, l := range t.Lines {
			fmt.Fprintf(os.Stderr, "%.300s\n", l)
		}
		for _, r := range srv.Requests() {
			fmt.Fprintf(os.Stderr, "model: %d %s %.200q\n", r.Status, r.Rule, r.Prompt)
		}
		return err
	}
	t.Scrub(cli)
	if err := os.WriteFile(path, t.Format(), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d lines\n", strings.TrimSuffix(filepath.Base(path), ".txtar"), len(t.Lines))
	return nil
}
