// Command nestor runs Claude agents that nest.
package main

import (
	"os"

	"github.com/dfaf701a/nestor/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
