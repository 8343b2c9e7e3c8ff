//go:build linux

package sandbox

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/internal/proxy"
)

// BenchmarkTrue measures what the sandbox adds to the shortest command. What
// starts is the program that NESTOR_BENCH_PROGRAM names, or this test binary,
// which has less to initialize than nestor.
func BenchmarkTrue(b *testing.B) {
	var bare time.Duration // the median
	run := func(b *testing.B, argv []string) {
		var used time.Duration // of processor time, which a busy machine does not stretch
		var took []time.Duration
		for b.Loop() {
			began := time.Now()
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Dir = "/usr"
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			took = append(took, time.Since(began))
			used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		}
		slices.Sort(took)
		median := took[len(took)/2]
		if bare == 0 {
			bare = median
		}
		b.ReportMetric(float64(median.Microseconds())/1000, "median-ms")
		b.ReportMetric(float64((median-bare).Microseconds())/1000, "added-ms")
		b.ReportMetric(float64(median)/float64(bare), "x-bare")
		b.ReportMetric(float64(used.Microseconds())/1000/float64(b.N), "cpu-ms/op")
	}
	b.Run("bare", func(b *testing.B) { run(b, []string{"true"}) })
	for _, p := range append(slices.Clone(levels), Profile{Level: Strict, Network: Hosts}) {
		name := string(p.Level)
		if p.Network == Hosts {
			name += " hosts"
		}
		b.Run(name, func(b *testing.B) {
			p.Write = []string{b.TempDir()}
			if p.Network == Hosts {
				needsOutlet(b)
				p.Outlet, _ = outlet(b, proxy.Options{})
			}
			w, err := Wrap(p)
			if err != nil {
				b.Skip(err)
			}
			argv := w([]string{"true"})
			if program := os.Getenv("NESTOR_BENCH_PROGRAM"); program != "" {
				argv[0] = program
			}
			run(b, argv)
		})
	}
}
