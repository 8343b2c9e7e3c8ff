package permission

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Options that several commands of git share.
var (
	gitDiffOptions = []string{"abbrev?", "binary", "cached", "color?", "no-color", "color-words?", "cc", "check", "compact-summary", "cumulative",
		"diff-algorithm=", "diff-filter=", "dirstat?", "exit-code", "find-copies?", "find-copies-harder", "find-renames?", "first-parent",
		"full-index", "function-context", "histogram", "ignore-all-space", "ignore-blank-lines", "ignore-cr-at-eol", "ignore-space-at-eol",
		"ignore-space-change", "ignore-submodules?", "inter-hunk-context=", "indent-heuristic", "merge-base", "minimal", "name-only", "name-status",
		"no-ext-diff", "no-patch", "no-prefix", "no-renames", "no-textconv", "numstat", "patch", "patch-with-stat", "patience", "pickaxe-all",
		"pickaxe-regex", "quiet", "raw", "relative?", "shortstat", "staged", "stat?", "submodule?", "summary", "text", "unified=",
		"word-diff?", "word-diff-regex="}
	gitLogOptions = append([]string{"after=", "all", "all-match", "ancestry-path?", "author=", "author-date-order", "basic-regexp", "before=",
		"boundary", "branches?", "cherry", "cherry-mark", "cherry-pick", "committer=", "count", "date=", "date-order", "decorate?", "no-decorate",
		"dense", "extended-regexp", "first-parent", "fixed-strings", "follow", "format?", "full-history", "graph", "no-graph", "grep=",
		"invert-grep", "left-right", "left-only", "log-size", "max-count=", "max-parents=", "merges", "min-parents=", "no-abbrev",
		"no-abbrev-commit", "abbrev-commit", "no-merges", "no-notes", "no-walk?", "notes?", "oneline", "parents", "children", "perl-regexp",
		"pretty?", "reflog", "regexp-ignore-case", "relative-date", "remotes?", "reverse", "right-only", "show-pulls", "simplify-by-decoration",
		"simplify-merges", "since=", "skip=", "source", "sparse", "tags?", "topo-order", "until=", "walk-reflogs", "diff-merges=", "no-diff-merges"},
		gitDiffOptions...)
)

const (
	gitDiffFlags    = "abpRrstuvWwz"
	gitDiffAttached = "BCDGlMSU"
)

// gitReads are the commands of git that only read, with the options in which
// they do. What makes git run a program or write a file is not here; nor is
// config, which shows what the user's own file holds.
var gitReads = map[string]command{
	"blame": {flags: "bcefknpstw", valued: "L", attached: "CM", long: []string{"abbrev=", "color-by-age", "color-lines", "date=", "incremental",
		"line-porcelain", "porcelain", "reverse", "root", "show-email", "show-name", "show-number", "since="}},
	"branch": {flags: "arvi", check: checkBranch, long: []string{"abbrev=", "all", "color?", "no-color", "column?", "no-column", "contains?",
		"format=", "ignore-case", "list", "merged?", "no-contains?", "no-merged?", "points-at=", "remotes", "show-current", "sort=", "verbose"}},
	"cat-file":      {flags: "epst"},
	"count-objects": {flags: "Hv", long: []string{"human-readable", "verbose"}},
	"describe": {long: []string{"abbrev=", "all", "always", "candidates=", "contains", "dirty?", "exact-match", "exclude=", "first-parent", "long",
		"match=", "tags"}},
	"diff":         {flags: gitDiffFlags, attached: gitDiffAttached, number: true, long: gitDiffOptions},
	"for-each-ref": {long: []string{"contains?", "count=", "exclude=", "format=", "ignore-case", "merged?", "no-contains?", "no-merged?", "points-at=", "sort="}},
	"grep": {flags: "acEFGhHIilLnopPqrvWwz", valued: "ABCem", number: true,
		long: []string{"after-context=", "all-match", "and", "basic-regexp", "before-context=", "break", "cached", "color?", "column", "context=",
			"count", "extended-regexp", "files-with-matches", "files-without-match", "fixed-strings", "full-name", "function-context", "heading",
			"ignore-case", "invert-match", "line-number", "max-count=", "max-depth=", "name-only", "not", "null", "only-matching", "or",
			"perl-regexp", "quiet", "recursive", "show-function", "text", "untracked", "word-regexp"}},
	"log": {flags: gitDiffFlags + "cEFgimP", valued: "Ln", attached: gitDiffAttached, number: true, long: gitLogOptions},
	"ls-files": {flags: "cdfikmorstuvz", valued: "x", long: []string{"abbrev?", "cached", "debug", "deleted", "directory", "eol", "exclude=",
		"exclude-standard", "full-name", "ignored", "killed", "modified", "no-empty-directory", "others", "stage", "unmerged"}},
	"ls-tree":    {flags: "dlrtz", long: []string{"abbrev?", "format=", "full-name", "full-tree", "long", "name-only", "name-status", "object-only"}},
	"merge-base": {flags: "a", long: []string{"all", "fork-point", "independent", "is-ancestor", "octopus"}},
	"name-rev":   {long: []string{"all", "always", "exclude=", "name-only", "no-undefined", "refs=", "tags"}},
	"reflog":     {flags: gitDiffFlags, valued: "n", attached: gitDiffAttached, number: true, long: gitLogOptions, check: onlyCalled("show")},
	"remote":     {flags: "v", long: []string{"all", "push", "verbose"}, check: onlyCalled("get-url")},
	"rev-list":   {flags: "gi", valued: "n", number: true, long: append([]string{"objects", "disk-usage?"}, gitLogOptions...)},
	"rev-parse": {flags: "q", long: []string{"abbrev-ref?", "absolute-git-dir", "all", "branches?", "git-common-dir", "git-dir", "git-path=",
		"is-bare-repository", "is-inside-git-dir", "is-inside-work-tree", "is-shallow-repository", "quiet", "remotes?", "short?", "show-cdup",
		"show-prefix", "show-toplevel", "symbolic", "symbolic-full-name", "tags?", "verify"}},
	"shortlog": {flags: "cens", long: append([]string{"email", "group=", "numbered"}, gitLogOptions...)},
	"show":     {flags: gitDiffFlags + "cmi", valued: "n", attached: gitDiffAttached, number: true, long: gitLogOptions},
	"stash":    {flags: "pu", number: true, long: append([]string{"include-untracked", "only-untracked"}, gitLogOptions...), check: mustBeCalled("list", "show")},
	"status": {flags: "bsvz", attached: "u", long: []string{"ahead-behind", "branch", "column?", "find-renames?", "ignore-submodules?", "ignored?",
		"long", "no-ahead-behind", "no-column", "no-renames", "porcelain?", "renames", "short", "show-stash", "untracked-files?", "verbose"}},
	"tag": {flags: "il", attached: "n", check: checkTag, long: []string{"color?", "column?", "contains?", "format=", "ignore-case", "list", "merged?",
		"no-column", "no-contains?", "no-merged?", "points-at=", "sort="}},
	"version":  {long: []string{"build-options"}},
	"worktree": {flags: "vz", long: []string{"porcelain", "verbose"}, check: mustBeCalled("list")},
}

// gitGlobals are options before the command that change nothing of what it does.
var gitGlobals = []string{"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects"}

// checkGit looks at the arguments of git.
func checkGit(args []string, r *reads) error {
	for len(args) > 0 && slices.Contains(gitGlobals, args[0]) {
		args = args[1:]
	}
	if len(args) == 0 || args[0] == "--version" {
		return nil
	}
	if strings.HasPrefix(args[0], "-") {
		return fmt.Errorf("the option %q is not one of those that only read", clip(args[0]))
	}
	c, known := gitReads[args[0]]
	if !known {
		return fmt.Errorf("%q is not one of its commands that only read: %s", clip(args[0]), strings.Join(slices.Sorted(maps.Keys(gitReads)), ", "))
	}
	if c.check != nil {
		if err := c.check(args[1:], r); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
	}
	o, err := c.options(args[1:])
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	for _, arg := range args[1:] {
		if strings.Contains(arg, "%G") || strings.Contains(arg, "%(signature") {
			return errors.New("a format with a signature runs a program that checks it")
		}
	}
	r.here = true
	for _, arg := range o.rest {
		if filepath.IsAbs(arg) || slices.Contains(strings.Split(filepath.ToSlash(arg), "/"), "..") || strings.HasPrefix(arg, "~") {
			r.paths = append(r.paths, arg) // it may be a file outside of the repository
		}
	}
	return nil
}

// onlyCalled is for commands of which, besides listing, only one of these
// subcommands reads.
func onlyCalled(names ...string) func([]string, *reads) error {
	return func(args []string, _ *reads) error {
		i := slices.IndexFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
		if i > 0 || i == 0 && !slices.Contains(names, args[0]) {
			return fmt.Errorf("%q is not one of those that only read: %s", clip(args[i]), strings.Join(names, ", "))
		}
		return nil
	}
}

// mustBeCalled is for commands that change something unless they begin with one
// of these subcommands.
func mustBeCalled(names ...string) func([]string, *reads) error {
	return func(args []string, _ *reads) error {
		if len(args) == 0 || !slices.Contains(names, args[0]) {
			return fmt.Errorf("only this reads: %s", strings.Join(names, ", "))
		}
		return nil
	}
}

// checkBranch refuses the name of a branch, which would be made, unless branches
// are listed.
func checkBranch(args []string, _ *reads) error { return listing(args, "--list") }

func checkTag(args []string, _ *reads) error { return listing(args, "--list", "-l", "-n") }

func listing(args []string, options ...string) error {
	options = append(options, "--contains", "--no-contains", "--merged", "--no-merged", "--points-at")
	for _, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		if slices.Contains(options, name) {
			return nil
		}
	}
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			return fmt.Errorf("%q would be made; write --list to look for it", clip(arg))
		}
	}
	return nil
}

// gitInWorkspace are the commands of git that change the repository where they
// run, and nothing elsewhere. Those that reach another repository are not here.
var gitInWorkspace = []string{
	"add", "am", "apply", "bisect", "branch", "checkout", "cherry-pick", "clean", "commit", "diff", "difftool", "format-patch", "gc", "grep", "init",
	"log", "ls-files", "merge", "mergetool", "mv", "notes", "prune", "range-diff", "rebase", "reflog", "repack", "reset", "restore", "rerere", "revert",
	"rev-list", "rev-parse", "rm", "show", "sparse-checkout", "stash", "status", "switch", "tag", "update-index", "check-ignore", "hash-object", "blame",
	"shortlog", "cat-file", "describe", "show-ref", "symbolic-ref", "merge-tree", "write-tree", "diff-tree", "diff-index", "diff-files", "check-attr",
}

// git says why a command line is more of git than the level allows, as far as
// that can be told, or nil.
func (p Policy) git(command string, v *variety, dir string) error {
	if p.Git == Yes || !strings.Contains(command, "git") && !strings.Contains(command, "GIT") {
		return nil
	}
	if v.tooMuch() {
		return errors.New("the line is too long to see what git does in it")
	}
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"} {
		if strings.Contains(command, name) {
			return fmt.Errorf("%s may name another repository", name)
		}
	}
	for _, words := range v.gits {
		readErr := checkGit(words[1:], &reads{})
		if readErr == nil {
			continue
		}
		if p.Git == No {
			return fmt.Errorf("git may only be read: %w", readErr)
		}
		if err := p.gitHere(words[1:], dir); err != nil {
			return err
		}
	}
	return nil
}

// gitHere says why a command of git may reach beyond the workspace, or nil.
func (p Policy) gitHere(args []string, dir string) error {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		name, value, given := strings.Cut(args[0], "=")
		args = args[1:]
		switch name {
		case "-C", "--git-dir", "--work-tree":
			if !given {
				if len(args) == 0 {
					return fmt.Errorf("%s has no value", name)
				}
				value, args = args[0], args[1:]
			}
			where, err := resolve(value, dir)
			if err != nil {
				return err
			}
			if !withinAny(p.Write, where) {
				return fmt.Errorf("%s is outside of the workspace", clip(where))
			}
		case "-c":
			args = args[min(1, len(args)):]
		case "--exec-path", "--namespace", "--super-prefix", "--config-env":
			return fmt.Errorf("%s changes what git runs, or where", name)
		}
	}
	if len(args) == 0 {
		return nil
	}
	if args[0] == "config" {
		if i := slices.IndexFunc(args, func(arg string) bool {
			return strings.HasPrefix(arg, "--g") && !strings.HasPrefix(arg, "--get") || strings.HasPrefix(arg, "--sy") || strings.HasPrefix(arg, "--f") || arg == "-f"
		}); i >= 0 {
			return fmt.Errorf("config %s is about a file outside of the repository", clip(args[i]))
		}
		return nil
	}
	if !slices.Contains(gitInWorkspace, args[0]) {
		return fmt.Errorf("git %s may reach beyond the workspace's repository", clip(path.Base(args[0])))
	}
	return nil
}
