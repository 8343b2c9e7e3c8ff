package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "nestor version\nnestor version --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			build, _ := debug.ReadBuildInfo()
			v := versionOf(build)
			if asJSON {
				return printJSON(cmd.OutOrStdout(), v)
			}
			return v.print(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// version says what this binary was built from. Commit and Date are empty
// where the build did not know them.
type version struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"` // the tree differed from Commit
	Date     string `json:"date"`     // of Commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// versionOf reads build, which may be nil.
func versionOf(build *debug.BuildInfo) version {
	v := version{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if build == nil {
		return v
	}
	if build.Main.Version != "" && build.Main.Version != "(devel)" {
		v.Version = build.Main.Version
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Date = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v version) print(w io.Writer) error {
	commit, date := v.Commit, v.Date
	if commit == "" {
		commit = "unknown"
	}
	if v.Modified {
		commit += " (modified)"
	}
	if date == "" {
		date = "unknown"
	}
	_, err := fmt.Fprintf(w, "nestor %s\ncommit    %s\ndate      %s\ngo        %s\nplatform  %s\n",
		v.Version, commit, date, v.Go, v.Platform)
	return err
}
