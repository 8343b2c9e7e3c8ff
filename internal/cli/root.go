// Package cli is the command line: one file per command.
//
// A command parses its flags into an options struct and hands that to a
// function that does the work. What goes wrong is returned, printed once, by
// Main, and becomes an exit code there.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

// exitCode is what the process tells its caller.
type exitCode int

const (
	exitOK        exitCode = 0
	exitError     exitCode = 1
	exitUsage     exitCode = 2   // the command line is wrong; nothing was done
	exitPartial   exitCode = 3   // a limit ended the run, and there is output
	exitRefused   exitCode = 4   // a limit or the policy forbids it
	exitCancelled exitCode = 130 // as shells report Ctrl-C
)

// Main runs one command line, args without the program's name, and returns
// the exit code of the process. The first Ctrl-C, SIGTERM or SIGHUP asks the command to
// end, the second ends the process.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	defer stop()
	context.AfterFunc(ctx, stop)

	root := newRoot()
	root.SetArgs(append([]string{}, args...)) // never nil: cobra would read os.Args
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)

	err := root.ExecuteContext(ctx)
	code := codeOf(ctx, err)
	if _, coded := errors.AsType[*codedError](err); code == exitCancelled && !coded {
		err = errors.New("cancelled")
	}
	if err != nil {
		fmt.Fprintf(stderr, "nestor: %v\n", err)
	}
	return int(code)
}

// endings are the signals that ask a command to end. One that is ignored, as SIGHUP is
// below nohup, stays so.
func endings() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

// codedError is an error with an exit code of its own.
type codedError struct {
	code exitCode
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

func codeOf(ctx context.Context, err error) exitCode {
	if err == nil {
		return exitOK
	}
	if e, ok := errors.AsType[*codedError](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*nestor.LimitError](err); ok {
		return exitRefused
	}
	if p, ok := errors.AsType[*api.Problem](err); ok && (p.Status == http.StatusForbidden || p.Status == http.StatusUnauthorized) {
		return exitRefused
	}
	if ctx.Err() != nil {
		return exitCancelled
	}
	return exitError
}

func newRoot() *cobra.Command {
	root := newGroup("nestor", "Run Claude agents that nest",
		newRun(),
		newSpawn(),
		newMCP(),
		newServe(),
		newWorker(),
		newHistory(),
		newVersion(),
		newDoctor(),
		newConfig(),
		newModel(),
		newRuns(),
		newAgents(),
		newGraph(),
		newInit(),
		newDemo(),
		newWorkspaces(),
		newAsks(),
		newCompletion(),
	)
	root.Example = "nestor run \"say hello\"\nnestor doctor\nnestor model serve --script hello.yaml"
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(printHelp)
	root.SetHelpCommand(newHelp())
	return root
}

// newGroup returns a command that only holds others. Alone it prints its help.
func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:   use,
		Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	group.AddCommand(commands...)
	return group
}
