// Command bench-api measures agents of the provider "api", which are a loop in
// this process, against the CLI: how long a new one takes to its first text, and
// what it costs to have thousands. The CLI is the real one; the model is
// scripted, and has a process of its own. It prints Markdown, and fails when a
// goal is missed. 'make bench-api' runs it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// What a process of this program does: it starts itself for each role, so that
// memory and time are those of one role alone.
const (
	roleVariable  = "BENCH_ROLE"  // "model" or "crowd"; empty compares
	crowdVariable = "BENCH_CROWD" // how many agents there are
	modelVariable = "BENCH_MODEL" // the address of the model
)

// The goals.
const (
	atLeast     = 50.0    // times faster than a cold CLI
	mostPerIdle = 100_000 // bytes
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, end := context.WithTimeout(ctx, 10*time.Minute)
	defer end()
	if err := play(ctx, os.Getenv(roleVariable)); err != nil {
		fmt.Fprintln(os.Stderr, "bench-api:", err)
		os.Exit(1)
	}
}

func play(ctx context.Context, role string) error {
	crowd, _ := strconv.Atoi(os.Getenv(crowdVariable))
	switch role {
	case "model":
		return serveModel(ctx, crowd)
	case "crowd":
		return runCrowd(ctx, os.Getenv(modelVariable), crowd)
	}
	fmt.Printf("A scripted model in a process of its own. %s/%s, %d cores, %s.\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	return errors.Join(compareStarts(ctx), compareCrowds(ctx))
}

// withModel runs f while a model is there.
func withModel(ctx context.Context, crowd int, f func(url string) error) error {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=model", crowdVariable+"="+strconv.Itoa(crowd))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		err = f(strings.TrimSpace(url))
	}
	in.Close()
	return errors.Join(err, cmd.Wait())
}

// compareCrowds measures crowds of agents, each in a process of its own.
func compareCrowds(ctx context.Context) error {
	fmt.Print("Each agent of a crowd remembers (mode client), has a folder of its own and one conversation: it reads a file, writes another, " +
		"and answers. The last answers wait for each other, so that all streams are open when the running are measured. " +
		"Then all get a second message at once and run a command (Bash); nothing bounds how many start together. " +
		"Memory is heap and stacks in use (and resident), over that of a process with one agent.\n\n")
	fmt.Println("| agents | conversations | with a command | errors | an agent that was made | that runs | that waits | files and goroutines, running | waiting |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	var errs []error
	for _, crowd := range []int{1, 100, 5000} {
		var f figures
		err := withModel(ctx, crowd, func(url string) error {
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), roleVariable+"=crowd", crowdVariable+"="+strconv.Itoa(crowd), modelVariable+"="+url)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				return fmt.Errorf("%d agents: %w", crowd, err)
			}
			return json.Unmarshal(out, &f)
		})
		if err != nil {
			return err
		}
		each := func(s state) string {
			if s.Heap < 0 { // the process has more to say than its agents
				return "–"
			}
			return fmt.Sprintf("%.1f KB (%.1f)", float64(s.Heap)/float64(crowd)/1e3, float64(s.Resident)/float64(crowd)/1e3)
		}
		fmt.Printf("| %d | %.1f s, %.0f/s | %.1f s, %.0f/s | %d | %s | %s | %s | %d, %d | %d, %d |\n", f.Agents, f.Took.Seconds(), float64(f.Agents)/f.Took.Seconds(),
			f.Bash.Seconds(), float64(f.Agents)/f.Bash.Seconds(), f.Errors, each(f.New), each(f.Running), each(f.Idle), f.Running.Files, f.Running.Goroutines, f.Idle.Files, f.Idle.Goroutines)
		if f.Errors > 0 {
			errs = append(errs, fmt.Errorf("%d of %d conversations failed, one with: %s", f.Errors, crowd, f.First))
		}
		if per := f.Idle.Heap / crowd; crowd > 1 && per > mostPerIdle {
			errs = append(errs, fmt.Errorf("an idle agent of %d holds %d bytes, and has to hold %d at most", crowd, per, mostPerIdle))
		}
	}
	return errors.Join(errs...)
}
