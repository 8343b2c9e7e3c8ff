// Command nestor runs Claude agents that nest.
package main

import (
	"os"
	"runtime"

	"github.com/dfaf701a/nestor/internal/cli"
)

func main() {
	runtime.MemProfileRate = 0 // nobody is shown a profile of the memory, for which each allocation is counted
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
