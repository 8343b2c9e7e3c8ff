package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

func newCompletion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	list := strings.Join(shells, ", ")
	return &cobra.Command{
		Use:       "completion SHELL",
		Short:     "Print a completion script",
		Long:      "Print a completion script for a shell: " + list + ".",
		Example:   "source <(nestor completion bash)\nnestor completion fish > ~/.config/fish/completions/nestor.fish",
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return misuse(cmd, "takes one shell (%s), got %d", list, len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(out)
			}
			return misuse(cmd, "no shell %q, only %s", args[0], list)
		},
	}
}
