//go:build linux

package sandbox

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// BenchmarkTrue measures what the sandbox adds to the shortest command. What
// starts is the program that NESTOR_BENCH_PROGRAM names, or this test binary,
// which has less to initialize than nestor.
func BenchmarkTrue(b *testing.B) {
	run := func(b *testing.B, argv []string) {
		var used time.Duration // of processor time, which a busy machine does not stretch
		for b.Loop() {
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Dir = "/usr"
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		}
		b.ReportMetric(float64(used.Microseconds())/1000/float64(b.N), "cpu-ms/op")
	}
	b.Run("bare", func(b *testing.B) { run(b, []string{"true"}) })
	for _, p := range levels {
		b.Run(string(p.Level), func(b *testing.B) {
			p.Write = []string{b.TempDir()}
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
