package workspace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if project := os.Getenv(crashEnv); project != "" {
		fmt.Fprintln(os.Stderr, playCrash(project))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// crashEnv makes the test binary play a daemon that is going to be killed.
const crashEnv = "NESTOR_TEST_CRASH_PROJECT"

// playCrash opens spaces, works in them and closes them, for ever, and says what it
// has written after it has.
func playCrash(project string) error {
	s := New(SpaceOptions{Project: project, Ports: 2, PortsFile: filepath.Join(project, ".nestor", "ports.json"), Copy: []string{".env"}})
	ctx := context.Background()
	for {
		run := newRun()
		for i := range 3 {
			sp, err := s.Open(ctx, Request{Run: run, Kind: Worktree, Slug: "crash"})
			if err != nil {
				return err
			}
			name := fmt.Sprintf("%s-%d", run, i)
			if err := os.WriteFile(filepath.Join(sp.Dir, name), []byte(name), 0o666); err != nil {
				return err
			}
			fmt.Println(run, name)
			end := Keep
			if i == 2 || rand.IntN(2) == 0 {
				end = Merge
			}
			if _, err := sp.Close(ctx, end); err != nil {
				return err
			}
		}
		if _, err := s.Collect(ctx, Policy{Age: time.Nanosecond}); err != nil {
			return err
		}
	}
}
