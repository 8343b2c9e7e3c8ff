package permission

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// within tells whether a path is a folder or lies below it. Both are absolute and
// clean.
func within(folder, path string) bool {
	if folder == path {
		return true
	}
	if !strings.HasSuffix(folder, string(filepath.Separator)) { // as "/" has
		folder += string(filepath.Separator)
	}
	return strings.HasPrefix(path, folder)
}

// withinAny tells whether a path lies in one of the folders. A folder that is not
// absolute holds nothing.
func withinAny(folders []string, path string) bool {
	for _, folder := range folders {
		if filepath.IsAbs(folder) && within(filepath.Clean(folder), path) {
			return true
		}
	}
	return false
}

// pathFits tells whether an absolute path fits a pattern as .gitignore has them:
// relative to dir, or absolute behind //. A pattern without a slash fits at any
// depth, and one of a folder what is in it. It returns doubt where nobody can
// tell: for a pattern that is none, and for ~, whose home nobody knows here, if
// it fits in some home.
func pathFits(pattern, name, dir string, doubt bool) bool {
	home := strings.HasPrefix(pattern, "~")
	fits, err := globFits(strings.Split(absolutePattern(pattern, dir), "/"), strings.Split(slashed(name), "/"))
	if err != nil || home && fits {
		return doubt
	}
	return fits
}

// absolutePattern makes a pattern one of whole paths. ~ becomes any folder.
func absolutePattern(pattern, dir string) string {
	if absolute, ok := strings.CutPrefix(pattern, "//"); ok {
		return path.Clean("/" + absolute)
	}
	if home, ok := strings.CutPrefix(pattern, "~"); ok {
		return path.Clean("/**/" + home)
	}
	pattern = strings.TrimPrefix(pattern, "./")
	if !strings.Contains(strings.TrimSuffix(pattern, "/"), "/") {
		pattern = "**/" + pattern
	}
	return path.Clean(quoteGlob(slashed(dir)) + "/" + pattern)
}

func slashed(name string) string { return filepath.ToSlash(filepath.Clean(name)) }

// quoteGlob makes a path a pattern that fits nothing else.
func quoteGlob(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// globFits compares segment by segment: ** stands for any number of them. What
// lies below what fits, fits.
func globFits(pattern, name []string) (bool, error) {
	reached := make([]bool, len(name)+1) // by the pattern so far, which parts of name
	reached[0] = true
	for _, segment := range pattern {
		next := make([]bool, len(reached))
		for i, here := range reached {
			switch {
			case segment == "**":
				next[i] = here || i > 0 && next[i-1]
			case here && i < len(name):
				fits, err := path.Match(segment, name[i])
				if err != nil {
					return false, err
				}
				next[i+1] = fits
			}
		}
		reached = next
	}
	return slices.Contains(reached, true), nil
}

// hostFits tells whether the host is the domain or, for "*.domain", below it.
func hostFits(domain, host string) bool {
	domain, host = strings.ToLower(domain), strings.ToLower(host)
	if below, ok := strings.CutPrefix(domain, "*."); ok {
		return strings.HasSuffix(host, "."+below)
	}
	return host == domain
}
