package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]...",
		Short:   "Explain a command",
		Example: "nestor help\nnestor help model serve",
		RunE: func(cmd *cobra.Command, args []string) error {
			about := cmd.Root()
			for _, name := range args {
				next, _, err := about.Find([]string{name})
				switch {
				case about.HasSubCommands() && (err != nil || next == about):
					return noCommand(about, name)
				case !about.HasSubCommands():
					return misuse(about, "has no command %q", name)
				}
				about = next
			}
			return about.Help()
		},
	}
}

// printHelp is what "nestor help" and --help print.
func printHelp(cmd *cobra.Command, _ []string) {
	if f := cmd.Flags().Lookup("help"); f != nil {
		f.Hidden = true // who reads this knows it
	}
	var b strings.Builder
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s\n", strings.TrimSpace(about), usageLine(cmd))
	if cmd.HasAvailableSubCommands() {
		fmt.Fprint(&b, "\nCommands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-*s  %s\n", cmd.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	if flags := cmd.Flags().FlagUsages(); flags != "" {
		fmt.Fprintf(&b, "\nFlags:\n%s", flags)
	}
	if cmd.Example != "" {
		fmt.Fprint(&b, "\nExamples:\n")
		for line := range strings.Lines(cmd.Example) {
			fmt.Fprintf(&b, "  %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	if cmd.HasAvailableSubCommands() {
		_, path, _ := strings.Cut(cmd.CommandPath()+" COMMAND", " ")
		fmt.Fprintf(&b, "\nRun 'nestor help %s' for more.\n", path)
	}
	fmt.Fprint(cmd.OutOrStdout(), b.String())
}

func usageLine(cmd *cobra.Command) string {
	if cmd.HasSubCommands() {
		return cmd.CommandPath() + " COMMAND"
	}
	return cmd.UseLine()
}
