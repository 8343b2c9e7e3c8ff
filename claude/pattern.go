package claude

import (
	"regexp"
	"sync"
)

// pattern returns the regular expression, which is made when it is first asked
// for: a program that links the package does not pay for it at its start.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
