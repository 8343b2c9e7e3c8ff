package permission

import (
	"slices"
	"strings"
)

// strictness orders modes, from those that allow most to those that allow least.
// What auto allows, a model decides: it may be more than edits.
var strictness = []string{ModeBypass, ModeAuto, ModeAcceptEdits, ModeDefault, ModeDontAsk, ModePlan}

// StricterMode returns the mode of the two that allows less. An empty one leaves it to
// the other, and one that is not known allows least.
func StricterMode(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	case rank(b) > rank(a):
		return b
	}
	return a
}

func rank(mode string) int {
	if i := slices.Index(strictness, mode); i >= 0 {
		return i
	}
	return len(strictness)
}

// MeetTools returns the rules about tools that are in both lists: of two about the
// same tool, the one that says which calls. Nil means all tools.
func MeetTools(a, b []string) []string {
	switch {
	case a == nil:
		return slices.Clone(b)
	case b == nil:
		return slices.Clone(a)
	}
	both := []string{} // which is not all
	for _, x := range a {
		for _, y := range b {
			rule, ok := MeetRules(x, y)
			if ok && !slices.Contains(both, rule) {
				both = append(both, rule)
			}
		}
	}
	return both
}

// MeetRules returns the narrower of two rules about tools; ok is false if none of them
// is within the other.
func MeetRules(x, y string) (rule string, ok bool) {
	xName, xSome, _ := strings.Cut(x, "(")
	yName, ySome, _ := strings.Cut(y, "(")
	switch {
	case xName == yName && (xSome == ySome || ySome == ""):
		return x, true
	case xName == yName && xSome == "":
		return y, true
	case strings.HasPrefix(xName, "mcp__") && strings.HasPrefix(xName, strings.TrimSuffix(yName, "__*")+"__"):
		return x, true
	case strings.HasPrefix(yName, "mcp__") && strings.HasPrefix(yName, strings.TrimSuffix(xName, "__*")+"__"):
		return y, true
	}
	return "", false
}
