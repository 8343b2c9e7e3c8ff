//go:build linux

package sandbox

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if role, ok := roles[os.Args[1]]; ok {
			os.Exit(role(os.Args[2:]))
		}
	}
	os.Setenv("GORACE", quickExit) // for the probe
	goleak.VerifyTestMain(m)
}

// quickExit spares each process under -race a second of sleep when it exits.
const quickExit = "atexit_sleep_ms=0"

// roles are what the test binary plays when its first argument is their name.
var roles = map[string]func(args []string) int{
	"daemon": playDaemon,
	"attack": playAttacker,
}
