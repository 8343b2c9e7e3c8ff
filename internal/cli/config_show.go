package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func newConfig() *cobra.Command {
	cmd := newGroup("config", "Show and check the configuration",
		newConfigShow(),
		newConfigPath(),
		newConfigCheck(),
		newConfigTrust(),
	)
	cmd.Example = "nestor config show\nnestor config check .nestor/config.yaml"
	return cmd
}

type configShowOptions struct {
	dir    string
	asJSON bool
}

func newConfigShow() *cobra.Command {
	var opts configShowOptions
	cmd := &cobra.Command{
		Use:   "show [KEY]",
		Short: "Print each value and where it came from",
		Long: `Print each value of the configuration and where it came from.

The project's .nestor/config.yaml goes over your own config.yaml, and that over
the defaults; variables such as NESTOR_LIMITS_MAX_TURNS go over the files, and
flags over all. A KEY prints that value alone, or those of a group. Keys and
tokens are not printed. What is "not trusted" does not count before 'nestor
config trust'.`,
		Example: "nestor config show\nnestor config show limits\nnestor config show --json model",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return misuse(cmd, "takes one key at most, got %q", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			key := strings.Join(args, "")
			if _, isKey := findKey(key); key != "" && !isKey && !isKeyGroup(key) {
				return misuse(cmd, "no key %q%s", key, didYouMean("", nearestKey(key)))
			}
			dir, err := projectDir(opts.dir)
			if err != nil {
				return fmt.Errorf("config show: %w", err)
			}
			c, _, err := examineConfig(dir, os.Environ(), nil)
			if err != nil {
				return err
			}
			values := c.values(key)
			if opts.asJSON {
				return printJSON(cmd.OutOrStdout(), struct {
					Project string        `json:"project"`
					Values  []configValue `json:"values"`
				}{dir, values})
			}
			return printValues(cmd.OutOrStdout(), values)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.dir, "dir", "", "show it for the project of `DIR` (default the current folder)")
	flags.BoolVar(&opts.asJSON, "json", false, "print one JSON document")
	return cmd
}

// configValue is one line of 'config show'.
type configValue struct {
	Key    string `json:"key"`
	Value  any    `json:"value"` // nil means unset
	Origin string `json:"origin"`
}

// values returns what the config says about a key, a group of keys, or, if the
// name is empty, all keys.
func (c *config) values(name string) []configValue {
	values := []configValue{}
	for _, k := range c.keys() {
		if name != "" && k.name != name && !strings.HasPrefix(k.name, name+".") {
			continue
		}
		v := configValue{k.name, k.in(c).get(), c.origin(k.name)}
		if k.secret && v.Value != nil {
			v.Value = "(set)"
		}
		values = append(values, v)
	}
	if strings.HasPrefix(name, sdkEnvPrefix) && len(values) == 0 {
		values = append(values, configValue{name, nil, c.origin(name)})
	}
	return values
}

func printValues(w io.Writer, values []configValue) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, v := range values {
		fmt.Fprintf(table, "%s\t%s\t%s\n", v.Key, quotedUnlessPlain(valueText(v.Value)), quotedUnlessPlain(v.Origin))
	}
	return table.Flush()
}

// valueText is a value in one line.
func valueText(value any) string {
	switch v := value.(type) {
	case nil:
		return "-"
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	}
	return fmt.Sprint(value)
}

// quotedUnlessPlain returns s, quoted if a terminal would do anything but print it.
func quotedUnlessPlain(s string) string {
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}
