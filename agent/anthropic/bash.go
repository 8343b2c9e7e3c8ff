package anthropic

import "strings"

// simple tells whether a command line is one command: nothing in it starts
// another, redirects, or becomes text that nobody has seen yet. It errs on the
// side of no.
func simple(command string) bool {
	return len(scan(command)) == 1
}

// parts returns the commands that a command line may run, as far as that can be
// told, and the line itself.
func parts(command string) []string {
	list := append(scan(command), command)
	for _, cut := range strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(";&|()`\n<>${}", r) }) {
		list = append(list, strings.TrimSpace(cut))
	}
	return list
}

// scan returns the line as the only element if it is one simple command, and
// nothing if it is not.
func scan(line string) []string {
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c < ' ' && c != '\t' && !(c == '\n' && quote != 0) || c == 0x7f:
			return nil
		case quote == '\'':
			if c == '\'' {
				quote = 0
			}
		case c == '\\':
			i++ // stands for itself, whatever it is
			if i >= len(line) || line[i] == '\n' {
				return nil
			}
		case c == '`' || c == '$':
			return nil // substitutions and expansions, also in double quotes
		case quote == '"':
			if c == '"' {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case strings.IndexByte(";&|<>(){}!", c) >= 0:
			return nil
		}
	}
	if quote != 0 || strings.TrimSpace(line) == "" {
		return nil
	}
	return []string{line}
}
