// Command bench-sdk measures package claude and the official TypeScript SDK
// side by side: both read the same stream from the same program, which plays
// the CLI, in one run. It prints Markdown. 'make bench-sdk' runs it.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// What a process of this program does: it starts itself for each role, so that
// memory and time are those of one role alone.
const (
	roleVariable  = "BENCH_ROLE"  // "emit", "read", "raw", "start"; empty compares
	countVariable = "BENCH_COUNT" // messages
	sizeVariable  = "BENCH_SIZE"  // bytes of a message
)

func main() {
	roles := map[string]func() error{"": compare, "emit": emit, "read": read, "raw": raw, "start": start}
	run, ok := roles[os.Getenv(roleVariable)]
	if !ok {
		fmt.Fprintf(os.Stderr, "bench-sdk: no role %q\n", os.Getenv(roleVariable))
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-sdk:", err)
		os.Exit(1)
	}
}

// figures is what one reader measured.
type figures struct {
	Messages int     `json:"messages"`
	Chars    int     `json:"chars"`
	Seconds  float64 `json:"seconds"` // from the first message to the end
	RSSKB    int     `json:"rss_kb"`  // at its highest
	Alloc    int     `json:"alloc"`   // bytes allocated in all; ours only
}

func (f figures) rate() float64 { return float64(f.Messages) / f.Seconds }

const (
	rounds  = 21
	size    = 575
	streams = 200_000
)

func compare() error {
	var ours, peers, raws []figures
	for range rounds { // in turns, so that noise meets all alike
		for _, m := range []struct {
			role string
			into *[]figures
		}{{"read", &ours}, {"peer", &peers}, {"raw", &raws}} {
			f, err := measure(m.role, streams, size)
			if err != nil {
				return err
			}
			if m.role != "raw" && (f.Messages != streams+1 || f.Chars == 0) {
				return fmt.Errorf("%s read %d messages of %d", m.role, f.Messages, streams+1)
			}
			*m.into = append(*m.into, f)
		}
	}
	times := ratios(ours, peers)
	our, peer, pipe := median(ours), median(peers), median(raws)
	fmt.Printf("%d messages of %d bytes, every one decoded; medians of %d rounds, taken in turns. %s, %d cores, %s.\n\n",
		streams, size, rounds, runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	fmt.Println("| reader | messages/s | MB/s | resident (peak) | allocated per message |")
	fmt.Println("|---|---|---|---|---|")
	row := func(name string, f figures, alloc string) {
		fmt.Printf("| %s | %.0f | %.0f | %.1f MB | %s |\n", name, f.rate(), f.rate()*size/1e6, float64(f.RSSKB)/1024, alloc)
	}
	row("package claude", our, fmt.Sprintf("%d B", our.Alloc/streams))
	row("TypeScript SDK 0.3.325", peer, "–")
	row("lines counted, not decoded", pipe, "–")
	ratio := our.rate() / peer.rate()
	fmt.Printf("\nRate: **%.1f times** the TypeScript SDK's (%.2f by the medians, %.2f by the median of the rounds, half of which lie between %.2f and %.2f), at **%.2f** of its memory and %.0f %% of the raw pipe's speed.\n\n",
		ratio, ratio, times[rounds/2], times[rounds/4], times[rounds*3/4], float64(our.RSSKB)/float64(peer.RSSKB), 100*our.rate()/pipe.rate())
	if err := sizes(); err != nil {
		return err
	}
	return startup()
}

// ratios returns how many times as fast as the peer a side was in each round, sorted: a
// machine's speed changes from one round to the next.
func ratios(side, peer []figures) (times []float64) {
	for i := range side {
		times = append(times, side[i].rate()/peer[i].rate())
	}
	slices.Sort(times)
	return times
}

// sizes shows how the rate behaves from small messages to large ones.
func sizes() error {
	fmt.Println("| message | package claude | TypeScript SDK | times |")
	fmt.Println("|---|---|---|---|")
	for _, s := range []int{200, 1_000, 10_000, 100_000, 1_000_000, 10_000_000} {
		n := min(200_000, max(20, 100_000_000/s))
		var ours, peers []figures
		for range 3 {
			our, err := measure("read", n, s)
			if err != nil {
				return err
			}
			peer, err := measure("peer", n, s)
			if err != nil {
				return err
			}
			ours, peers = append(ours, our), append(peers, peer)
		}
		our, peer := median(ours), median(peers)
		mbs := func(f figures) float64 { return f.rate() * float64(s) / 1e6 }
		fmt.Printf("| %d B | %.0f/s, %.0f MB/s, %d MB | %.0f/s, %.0f MB/s, %d MB | %.1f |\n",
			s, our.rate(), mbs(our), our.RSSKB>>10, peer.rate(), mbs(peer), peer.RSSKB>>10, our.rate()/peer.rate())
	}
	fmt.Println()
	return nil
}

// startup compares a start through the SDK with a bare one.
func startup() error {
	out, err := self("start", 1, size).Output()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}

// median returns the one with the median of the rates, with the median of what they
// held.
func median(f []figures) figures {
	middle := func(by func(a, b figures) int) figures {
		slices.SortFunc(f, by)
		return f[len(f)/2]
	}
	m := middle(func(a, b figures) int { return cmp.Compare(a.rate(), b.rate()) })
	m.RSSKB = middle(func(a, b figures) int { return cmp.Compare(a.RSSKB, b.RSSKB) }).RSSKB
	return m
}

// measure runs one reader in a process of its own.
func measure(role string, count, size int) (f figures, err error) {
	cmd := self(role, count, size)
	if role == "peer" {
		exe, err := os.Executable()
		if err != nil {
			return f, err
		}
		cmd.Path, cmd.Args = "", []string{"node", filepath.Join("tools", "bench-sdk", "peer.mjs"), exe}
		if cmd.Path, err = exec.LookPath("node"); err != nil {
			return f, err
		}
	}
	out, err := cmd.Output()
	if err != nil {
		if e, ok := err.(*exec.ExitError); ok {
			err = fmt.Errorf("%w: %s", err, e.Stderr)
		}
		return f, fmt.Errorf("%s: %w", role, err)
	}
	return f, json.Unmarshal(out, &f)
}

// self returns a command that plays a role.
func self(role string, count, size int) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		panic(err) // it runs
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, countVariable+"="+strconv.Itoa(count), sizeVariable+"="+strconv.Itoa(size))
	return cmd
}

// peak is the most memory that this process held, in KB.
func peak() int {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kb
		}
	}
	return 0
}
