// Command bench-run measures what 'nestor run' adds to the provider beneath it: the
// time to the first event and the first text, and that of a conversation with a hundred tool calls.
// Both sides are processes, started in turn; the CLI is the real one, the model is
// scripted and has a process of its own. It prints Markdown. 'make bench-run' runs it.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/agent/anthropic"
	"github.com/dfaf701a/nestor/agent/claudecode"
	"github.com/dfaf701a/nestor/claude/claudetest"
	"github.com/dfaf701a/nestor/scriptmodel"
)

const (
	roleVariable = "BENCH_ROLE" // settings of a bare provider, as JSON; modelRole; empty compares
	modelRole    = "model"      // it serves the model, whose script is its input

	rounds         = 41             // pairs of each row
	nestorVariable = "BENCH_NESTOR" // the nestor command
	onlyVariable   = "BENCH_ONLY"   // the provider that is measured; empty means both
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := func() error {
		switch role := os.Getenv(roleVariable); role {
		case "":
			return compare(ctx)
		case modelRole:
			return serveModel(ctx)
		default:
			return bare(ctx, role)
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-run:", err)
		os.Exit(1)
	}
}

// settings are what both sides are given.
type settings struct {
	Provider, URL, Path, Dir, Prompt string
	Env                              []string
}

// bare has a provider handle the prompt, as the runner would, and prints what it
// says.
func bare(ctx context.Context, text string) error {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	var p agent.Provider = anthropic.New(anthropic.Options{BaseURL: s.URL, APIKey: "key", Records: anthropic.DirRecords(filepath.Join(s.Dir, ".bare"))})
	if s.Provider == claudecode.Type {
		p = claudecode.New(claudecode.Options{Path: s.Path, Env: s.Env, ReplaceEnv: true})
	}
	a, err := p.Create(ctx, agent.Config{
		Name: "agent", Dir: s.Dir, Limits: agent.Limits{MaxTurns: 200}, Credentials: map[string]string{"partial": "true", "mode": "client"},
	})
	if err != nil {
		return err
	}
	defer a.Shutdown(context.Background())
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for m, err := range a.Handle(ctx, agent.NewMessage("bench", s.Prompt)) {
		if err != nil {
			return err
		}
		line, err := json.Marshal(m.Metadata)
		if err != nil {
			return err
		}
		out.Write(append(line, '\n'))
		out.Flush()
	}
	return nil
}

// script has the model speak at once, or call a hundred tools.
const script = `
rules:
  - when: {user: "hundred"}
    turns: [%s{text: Done.}]
  - turns: [{text: Hello there.}]
`

func compare(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bench-run-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cli, err := claudetest.Install(dir)
	if err != nil {
		return err
	}
	b := &bench{dir: dir, cli: cli}
	if err := b.anew(); err != nil {
		return err
	}
	file := filepath.Join(b.project(), "a.txt")
	if err := os.WriteFile(file, []byte("hello\n"), 0o600); err != nil {
		return err
	}
	calls := strings.Repeat(fmt.Sprintf("{wait: 20ms, tools: [{name: Read, input: {file_path: %s}}]}, ", file), 100)
	model := exec.CommandContext(ctx, os.Args[0])
	model.Env = append(os.Environ(), roleVariable+"="+modelRole)
	model.Stdin, model.Stderr = strings.NewReader(fmt.Sprintf(script, calls)), os.Stderr
	model.Cancel = func() error { return model.Process.Signal(os.Interrupt) }
	out, err := model.StdoutPipe()
	if err != nil {
		return err
	}
	if err := model.Start(); err != nil {
		return err
	}
	if b.url, err = bufio.NewReader(out).ReadString('\n'); err == nil {
		b.url = strings.TrimSpace(b.url)
		err = b.all(ctx)
	}
	model.Process.Signal(os.Interrupt)
	return errors.Join(err, model.Wait())
}

// serveModel serves the model whose script it reads, says where, and does so until
// it is interrupted.
func serveModel(ctx context.Context) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	parsed, err := scriptmodel.ParseScript("script", text)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + ln.Addr().String())
	return scriptmodel.New(parsed, scriptmodel.Options{Keep: -1}).Serve(ctx, ln)
}

type bench struct {
	dir string
	cli *claudetest.CLI
	url string

	fast []string // lines of what was found of the faster halves
}

func (b *bench) all(ctx context.Context) error {
	if err := b.configure(); err != nil {
		return err
	}
	fmt.Printf("%s/%s, %d cores, %s; medians of %d processes each, started in turn; what is added is the median of the pairs (and in per cent between what it lies, with a probability of 95 %%).\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), rounds)
	fmt.Println("| what | bare provider | `nestor run` | added | bare provider | with a daemon | added |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, provider := range []string{"api", "sdk"} {
		if only := os.Getenv(onlyVariable); only != "" && only != provider {
			continue
		}
		for _, part := range []struct {
			what, prompt string
			until        moment
		}{{"to the first event", "hello", firstEvent}, {"to the first text", "hello", firstText}, {"a hundred tool calls, 20 ms each to the model", "hundred", theEnd}} {
			if err := b.row(ctx, provider, part.what, part.prompt, part.until); err != nil {
				return err
			}
		}
	}
	fmt.Println("\nThe same of the faster half of each side, by their means, to which a noisy machine adds least:")
	fmt.Println()
	fmt.Print(strings.Join(b.fast, ""))
	fmt.Println()
	return nil
}

// configure writes the user's config of 'nestor run'.
func (b *bench) configure() error {
	folder := filepath.Join(b.dir, "config", "nestor")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "limits: {max_turns: 200}\nproviders:\n  sdk:\n    path: %s\n    env:\n", b.cli.Path)
	for _, kv := range slices.Concat(b.cli.Env, scriptmodel.ClientEnv(b.url)) {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&text, "      %s: %q\n", name, value)
	}
	fmt.Fprintf(&text, "  api: {base_url: %q}\n", b.url)
	return os.WriteFile(filepath.Join(folder, "config.yaml"), text.Bytes(), 0o600)
}

// anew forgets what was done in the project.
func (b *bench) anew() error {
	home := filepath.Join(b.project(), ".nestor")
	return errors.Join(os.RemoveAll(home), os.RemoveAll(filepath.Join(b.project(), ".bare")), os.MkdirAll(home, 0o700))
}

// row measures both sides in turn, without and with a daemon, and prints what it
// found. Each begins in a project in which nothing was done: a start takes the longer
// the more was.
func (b *bench) row(ctx context.Context, provider, what, prompt string, until moment) error {
	if err := b.anew(); err != nil {
		return err
	}
	lone, fastLone, err := b.pairs(ctx, provider, prompt, until)
	if err != nil {
		return err
	}
	if err := b.anew(); err != nil {
		return err
	}
	daemon := exec.CommandContext(ctx, os.Getenv(nestorVariable), "serve", "--dir", b.project())
	daemon.Env = b.env()
	daemon.Stderr = os.Stderr
	out, err := daemon.StdoutPipe()
	if err != nil {
		return err
	}
	if err := daemon.Start(); err != nil {
		return err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("the daemon says nothing: %w", err)
	}
	served, fastServed, err := b.pairs(ctx, provider, prompt, until)
	if err != nil {
		return err
	}
	daemon.Process.Signal(os.Interrupt)
	if err := daemon.Wait(); err != nil {
		return fmt.Errorf("the daemon: %w", err)
	}
	fmt.Printf("| %s: %s | %s | %s |\n", provider, what, lone, served)
	b.fast = append(b.fast, fmt.Sprintf("- %s: %s: %s; with a daemon %s\n", provider, what, fastLone, fastServed))
	return nil
}

// pairs measures the bare provider and 'nestor run' in turn, the one first and then
// the other, and returns three columns, and what the faster half of each has for the
// last one.
func (b *bench) pairs(ctx context.Context, provider, prompt string, until moment) (columns, fast string, err error) {
	var plain, ours, more []time.Duration
	for i := range rounds + 1 { // the first time makes files, and is not counted
		var took [2]time.Duration
		for n := range took {
			side := (i + n) % 2
			cmd := b.bare(ctx, provider, prompt)
			if side == 1 {
				cmd = b.nestor(ctx, provider, prompt)
			}
			if took[side], err = measure(cmd, until); err != nil {
				return "", "", err
			}
		}
		if i > 0 {
			plain, ours, more = append(plain, took[0]), append(ours, took[1]), append(more, took[1]-took[0])
		}
	}
	base := median(plain)
	low, high := around(more)
	columns = fmt.Sprintf("%.1f ms | %.1f ms | %s (%.1f to %.1f)", ms(base), ms(median(ours)), added(base, median(more)), percent(low, base), percent(high, base))
	base = fasterHalf(plain)
	return columns, added(base, fasterHalf(ours)-base), nil
}

// added says what is taken more than base.
func added(base, more time.Duration) string {
	return fmt.Sprintf("%.1f ms, %.1f %%", ms(more), percent(more, base))
}

func percent(part, of time.Duration) float64 { return 100 * float64(part) / float64(of) }

// around returns between what the median lies of all that a list, which it sorts, could
// have been, with a probability of 95 %, whatever their distribution is.
func around(list []time.Duration) (low, high time.Duration) {
	slices.Sort(list)
	half := int(math.Ceil(0.98 * math.Sqrt(float64(len(list)))))
	return list[max(len(list)/2-half, 0)], list[min(len(list)/2+half, len(list)-1)]
}

// fasterHalf returns the mean of the faster half of a list, which it sorts.
func fasterHalf(list []time.Duration) (sum time.Duration) {
	slices.Sort(list)
	half := list[:(len(list)+1)/2]
	for _, d := range half {
		sum += d
	}
	return sum / time.Duration(len(half))
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (b *bench) bare(ctx context.Context, provider, prompt string) *exec.Cmd {
	s, err := json.Marshal(settings{
		Provider: provider, URL: b.url, Path: b.cli.Path, Dir: b.project(), Prompt: prompt, Env: slices.Concat(b.cli.Env, scriptmodel.ClientEnv(b.url)),
	})
	if err != nil {
		panic(err) // strings always marshal
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(b.env(), roleVariable+"="+string(s))
	return cmd
}

func (b *bench) nestor(ctx context.Context, provider, prompt string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Getenv(nestorVariable), "run", "--stream-json", "--provider", provider, prompt)
	cmd.Env, cmd.Dir = b.env(), b.project()
	return cmd
}

func (b *bench) env() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "LANG=" + os.Getenv("LANG"), "HOME=" + b.dir, "XDG_CONFIG_HOME=" + filepath.Join(b.dir, "config"),
		"ANTHROPIC_API_KEY=key",
	}
}

// project is the folder in which all sides work: what one may read there, all may.
func (b *bench) project() string { return filepath.Join(b.dir, "project") }

// moment is something that a process prints.
type moment int

const (
	firstEvent moment = iota // the first line, whatever it says
	firstText
	theEnd
)

// measure returns how long a process takes to a moment.
func measure(cmd *exec.Cmd, until moment) (took time.Duration, err error) {
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	var failure error
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		if until == firstEvent && took == 0 {
			took = time.Since(start)
		}
		if until == firstText && took == 0 && (strings.Contains(line, `"partial_text"`) || strings.Contains(line, `"type":"agent_delta"`) ||
			strings.Contains(line, `"assistant_text"`) || strings.Contains(line, `"type":"agent_complete"`)) {
			took = time.Since(start)
		}
		if strings.Contains(line, `"agent_execution_complete"`) || strings.Contains(line, `"sdk_type":"result"`) {
			if until == theEnd {
				took = time.Since(start)
			}
			if !strings.Contains(line, `"subtype":"success"`) && !strings.Contains(line, `"status":"success"`) {
				failure = errors.New(line)
			}
		}
	}
	if err := errors.Join(failure, cmd.Wait()); err != nil || took == 0 {
		return 0, fmt.Errorf("%v: took %v, %w: %s", cmd.Args, took, err, complaint.String())
	}
	return took, nil
}
