package cli

import "github.com/spf13/cobra"

func newModel() *cobra.Command {
	cmd := newGroup("model", "Play the model: a scripted Messages API",
		newModelServe(),
	)
	cmd.Example = "nestor model serve --script hello.yaml"
	return cmd
}
