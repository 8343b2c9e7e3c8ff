package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dfaf701a/nestor/internal/spelling"
)

// usageError says what is wrong with the command line, and the way out.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// misuse returns the usageError of cmd, which points to its help. The text
// names cmd, unless that is the root.
func misuse(cmd *cobra.Command, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if !strings.HasSuffix(text, "?") {
		text += ";"
	}
	_, path, nested := strings.Cut(cmd.CommandPath(), " ")
	if !nested {
		return &usageError{fmt.Sprintf("%s run 'nestor help'", text)}
	}
	return &usageError{fmt.Sprintf("%s: %s run 'nestor help %s'", path, text, path)}
}

// noCommand says that group has no command of that name.
func noCommand(group *cobra.Command, name string) error {
	var names []string
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return misuse(group, "no command %q%s", name, didYouMean("", nearest(name, names)))
}

// flagError turns what pflag says into a usageError.
func flagError(cmd *cobra.Command, err error) error {
	// In "nestor spwan --json" the command is what is wrong.
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return noCommand(cmd, args[0])
	}
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		flag, name := "--"+e.GetSpecifiedName(), e.GetSpecifiedName()
		if short := e.GetSpecifiedShortnames(); short != "" {
			flag, name = "-"+short, short // "-json" means --json
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		return misuse(cmd, "no flag %q%s", flag, didYouMean("--", nearest(name, names)))
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return misuse(cmd, "--%s needs a value", e.GetFlag().Name)
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return misuse(cmd, "--%s is %.60q: want %s", e.GetFlag().Name, e.GetValue(), wanted(e.GetFlag().Value.Type()))
	}
	return misuse(cmd, "%v", err)
}

// wanted says what a flag takes whose value pflag gives that type.
func wanted(typ string) string {
	switch typ {
	case "bool":
		return "true or false"
	case "int":
		return "a whole number"
	case "uint64":
		return "a whole number, 0 or more"
	}
	return "a value of type " + typ
}

// noArgs is the Args of commands that take flags alone.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return misuse(cmd, "takes no arguments, got %q", args[0])
	}
	return nil
}

func didYouMean(prefix, name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", prefix+name)
}

// nearest returns the name that word is most likely a typo or the beginning
// of, or "" if none is near.
func nearest(word string, names []string) string {
	best, bestDistance := "", min(2, len(word)/2)+1
	for _, name := range names {
		d := spelling.Distance(word, name)
		if len(word) > 1 && strings.HasPrefix(name, word) {
			d = 0
		}
		if d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}
