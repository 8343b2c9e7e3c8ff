package scriptmodel

import (
	"regexp"
	"sync"
)

// pattern returns a regular expression that is compiled when it is used for the
// first time: it is part of programs that start often and never use it.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
