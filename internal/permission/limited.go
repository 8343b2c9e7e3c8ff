package permission

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// operands says what the arguments of a command are that are no options.
type operands int8

const (
	noFiles      operands = iota // texts, which it does not take for files
	anything                     // texts, also those that look like options
	files                        // files; none means its input, which is empty
	oneFile                      // a file; a second one it would write
	filesOrHere                  // files; none means the folder where it is
	patternFiles                 // a pattern, unless an option gives one, then files
	patternHere                  // a pattern, unless an option gives one, then files, or the folder where it is
)

// command is one that only reads, with the options in which it does.
type command struct {
	operands operands
	flags    string   // letters of options without a value
	valued   string   // letters of options that have a value in every version of the command; it is no file
	attached string   // letters of options whose value, if any, stands in the same word; it is no file
	long     []string // "name", "name=" with a value, "name?" with or without; no value is a file
	number   bool     // -20 is an option
	check    func(args []string, r *reads) error
}

// limitedCommands are the commands of Bash limited. An option that is not here
// is refused: what it does, this table would have to know.
var limitedCommands = map[string]command{
	"basename": {flags: "az", valued: "s", long: []string{"multiple", "suffix=", "zero"}},
	"cat":      {operands: files, flags: "AbeEnstTuv", long: []string{"number", "number-nonblank", "show-all", "show-ends", "show-tabs", "squeeze-blank"}},
	"cksum":    {operands: files},
	"cmp":      {operands: files, flags: "bls", long: []string{"bytes=", "print-bytes", "quiet", "silent", "verbose"}},
	"comm":     {operands: files, flags: "123z", long: []string{"check-order", "nocheck-order", "output-delimiter=", "total", "zero-terminated"}},
	"cut": {operands: files, flags: "nsz", valued: "bcdf",
		long: []string{"bytes=", "characters=", "complement", "delimiter=", "fields=", "only-delimited", "output-delimiter=", "zero-terminated"}},
	"date": {flags: "uIR", valued: "d", long: []string{"date=", "iso-8601?", "rfc-3339=", "rfc-email", "universal", "utc"}, check: checkDate},
	"diff": {operands: files, flags: "aBbcdeEiNnpqrstTuwyZ", valued: "FIL", attached: "CUW",
		long: []string{"brief", "color?", "context?", "exclude=", "ignore-all-space", "ignore-blank-lines", "ignore-case", "ignore-matching-lines=",
			"ignore-space-change", "label=", "minimal", "new-file", "recursive", "report-identical-files", "side-by-side", "show-c-function",
			"suppress-common-lines", "text", "unified?", "width="}},
	"dirname": {flags: "z", long: []string{"zero"}},
	"du": {operands: filesOrHere, flags: "0abcDhHkLlmPSsx", valued: "Bdt",
		long: []string{"all", "apparent-size", "block-size=", "bytes", "exclude=", "human-readable", "max-depth=", "one-file-system", "si", "summarize", "time?", "total"}},
	"echo":  {operands: anything},
	"egrep": grep(patternFiles),
	"false": {},
	"fgrep": grep(patternFiles),
	"file":  {operands: files, flags: "bhiLNnp0", long: []string{"brief", "dereference", "mime", "mime-encoding", "mime-type", "no-dereference"}},
	"find":  {operands: anything, check: checkFind},
	"git":   {operands: anything, check: checkGit},
	"grep":  grep(patternFiles),
	"head":  {operands: files, flags: "qvz", valued: "cn", long: []string{"bytes=", "lines=", "quiet", "silent", "verbose", "zero-terminated"}, number: true},
	"id":    {flags: "Ggnru", long: []string{"group", "groups", "name", "real", "user"}},
	"ls": {operands: filesOrHere, flags: "1AaBbCcdFfGgHhiklLmNnopQqRrSstuUvXxZ",
		long: []string{"all", "almost-all", "classify?", "color?", "directory", "dereference", "file-type", "format=", "full-time", "group-directories-first",
			"hide=", "human-readable", "ignore=", "inode", "indicator-style=", "no-group", "numeric-uid-gid", "quoting-style=", "recursive",
			"reverse", "si", "size", "sort=", "time=", "time-style="}},
	"md5sum":   checksum(),
	"nl":       {operands: files, flags: "p", valued: "bdfhilnsvw"},
	"od":       {operands: files, flags: "abcdfilosvx", valued: "AjNt", long: []string{"address-radix=", "format=", "output-duplicates", "read-bytes=", "skip-bytes="}},
	"printf":   {operands: anything, check: checkPrintf},
	"pwd":      {flags: "LP", operands: noFiles},
	"readlink": {operands: files, flags: "efmnqsvz", long: []string{"canonicalize", "canonicalize-existing", "canonicalize-missing"}},
	"realpath": {operands: files, flags: "emLPqsz", long: []string{"canonicalize-existing", "canonicalize-missing", "no-symlinks", "strip"}},
	"rg": {operands: patternHere, flags: "0acFHhiILlnNopPqsSuUvVwx.", valued: "ABCEeMmgTtdjr",
		long: []string{"after-context=", "before-context=", "case-sensitive", "color=", "column", "context=", "count", "count-matches", "files",
			"files-with-matches", "files-without-match", "fixed-strings", "follow", "glob=", "glob-case-insensitive", "heading", "hidden", "iglob=",
			"ignore-case", "invert-match", "json", "line-number", "line-regexp", "max-columns=", "max-count=", "max-depth=", "multiline",
			"multiline-dotall", "no-filename", "no-heading", "no-ignore", "no-ignore-vcs", "no-line-number", "no-messages", "null", "only-matching",
			"pcre2", "quiet", "regexp=", "replace=", "smart-case", "sort=", "sortr=", "stats", "text", "threads=", "trim", "type=", "type-list",
			"type-not=", "unrestricted", "vimgrep", "with-filename", "word-regexp"}},
	"sha1sum":   checksum(),
	"sha256sum": checksum(),
	"sha512sum": checksum(),
	"sort": {operands: files, flags: "bCcdfghiMmnRrsuVz", valued: "kt",
		long: []string{"check?", "dictionary-order", "field-separator=", "general-numeric-sort", "human-numeric-sort", "ignore-case",
			"ignore-leading-blanks", "key=", "merge", "month-sort", "numeric-sort", "reverse", "stable", "unique", "version-sort", "zero-terminated"}},
	"stat":    {operands: files, flags: "Lft", valued: "c", long: []string{"dereference", "file-system", "format=", "printf=", "terse"}},
	"strings": {operands: files, flags: "afo", valued: "ent", long: []string{"all", "bytes=", "encoding=", "print-file-name", "radix="}},
	"tac":     {operands: files, flags: "br", valued: "s", long: []string{"before", "regex", "separator="}},
	"tail":    {operands: files, flags: "qvz", valued: "cn", long: []string{"bytes=", "lines=", "quiet", "silent", "verbose", "zero-terminated"}, number: true},
	"tree": {operands: filesOrHere, flags: "aACdDfFghilnNpqQrsStuUvx", valued: "ILP",
		long: []string{"dirsfirst", "du", "filelimit=", "ignore-case", "noreport", "prune", "si", "sort="}},
	"true":   {},
	"type":   {flags: "afptP"},
	"uname":  {flags: "amnoprsv"},
	"uniq":   {operands: oneFile, flags: "cdDiuz", valued: "fsw", long: []string{"count", "ignore-case", "repeated", "skip-chars=", "skip-fields=", "unique"}},
	"wc":     {operands: files, flags: "cLlmw", long: []string{"bytes", "chars", "lines", "max-line-length", "total=", "words"}},
	"which":  {flags: "a"},
	"whoami": {},
}

func grep(o operands) command {
	return command{operands: o, flags: "abcEFGHhiIlLnoPqRrsTUvVwxyzZ", valued: "ABDdem", attached: "C", number: true,
		long: []string{"after-context=", "basic-regexp", "before-context=", "binary-files=", "byte-offset", "color?", "colour?", "context?", "count",
			"dereference-recursive", "devices=", "directories=", "exclude=", "exclude-dir=", "extended-regexp", "files-with-matches",
			"files-without-match", "fixed-strings", "ignore-case", "include=", "initial-tab", "invert-match", "label=", "line-number", "line-regexp",
			"max-count=", "no-filename", "no-ignore-case", "no-messages", "null", "null-data", "only-matching", "perl-regexp", "quiet", "recursive",
			"regexp=", "silent", "text", "with-filename", "word-regexp"}}
}

func checksum() command {
	return command{operands: files, flags: "btz", long: []string{"binary", "tag", "text", "zero"}}
}

// LimitedCommands returns the names of what Bash limited may run, sorted.
func LimitedCommands() []string { return slices.Sorted(maps.Keys(limitedCommands)) }

// reads is what a command would read.
type reads struct {
	paths []string // as they are written
	here  bool     // the folder where it is
}

// limited says what a command line would read, or why it is none that only
// reads: one command of the table with its options, and nothing that a shell
// would make more of.
func limited(l line) (*reads, error) {
	switch {
	case l.opaque != "":
		return nil, fmt.Errorf("it holds %s", l.opaque)
	case l.joined != "":
		return nil, fmt.Errorf("it holds %s: run one command at a time", l.joined)
	}
	return onlyReads(l.parts[0])
}

// onlyReads is limited for one command.
func onlyReads(s simple) (*reads, error) {
	r := &reads{}
	for _, w := range s.words {
		if w.danger != "" {
			return nil, fmt.Errorf("%q %s", clip(w.text), w.danger)
		}
		if w.glob { // whatever it is for, it becomes names of files
			r.paths = append(r.paths, w.text)
		}
	}
	if s.words[0].assigns() {
		return nil, fmt.Errorf("%q sets a variable", clip(s.words[0].text))
	}
	name, args := s.words[0].text, texts(s.words[1:])
	c, known := limitedCommands[name]
	if !known {
		return nil, fmt.Errorf("%q is not one of the commands that only read: %s", clip(name), strings.Join(LimitedCommands(), ", "))
	}
	if err := c.read(args, r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// read adds what the command reads with these arguments.
func (c command) read(args []string, r *reads) error {
	if c.check != nil {
		if err := c.check(args, r); err != nil {
			return err
		}
	}
	if c.operands == anything {
		return nil
	}
	o, err := c.options(args)
	if err != nil {
		return err
	}
	if c.operands == noFiles {
		return nil
	}
	if c.operands == oneFile && len(o.rest) > 1 {
		return fmt.Errorf("it would write %q", clip(o.rest[1]))
	}
	pattern := c.operands == patternFiles || c.operands == patternHere
	if pattern && !o.has("e", "regexp", "files", "type-list") && len(o.rest) > 0 {
		o.rest = o.rest[1:]
	}
	recursive := pattern && o.has("r", "R", "recursive", "dereference-recursive", "d", "directories")
	r.here = r.here || len(o.rest) == 0 && (c.operands == filesOrHere || c.operands == patternHere || recursive)
	r.paths = append(r.paths, o.rest...)
	return nil
}

// options are the arguments of a command.
type options struct {
	names []string // letters and long names that were given
	rest  []string // what are no options
}

func (o options) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(o.names, name) })
}

// options takes args apart as getopt_long does. What another getopt would take
// apart differently is an error.
func (c command) options(args []string) (o options, err error) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			o.rest = append(o.rest, args[i+1:]...)
			break
		}
		if arg == "-" || !strings.HasPrefix(arg, "-") {
			o.rest = append(o.rest, arg)
			continue
		}
		if c.number && strings.Trim(arg[1:], "0123456789") == "" {
			continue
		}
		names, open, ok := c.option(arg)
		if !ok {
			return o, fmt.Errorf("the option %q is not one of those that only read", clip(arg))
		}
		o.names = append(o.names, names...)
		if !open {
			continue
		}
		if i++; i >= len(args) {
			return o, fmt.Errorf("%q has no value", clip(arg))
		}
		if len(o.rest) > 0 {
			return o, fmt.Errorf("%q stands behind what is no option: write options first", clip(arg))
		}
	}
	return o, nil
}

// option returns the names in a word of options, and whether the value of the
// last is the next word.
func (c command) option(arg string) (names []string, open, ok bool) {
	if long, isLong := strings.CutPrefix(arg, "--"); isLong {
		name, _, given := strings.Cut(long, "=")
		plain, valued, either := slices.Contains(c.long, name), slices.Contains(c.long, name+"="), slices.Contains(c.long, name+"?")
		return []string{name}, valued && !given, plain && !given || valued || either
	}
	letters := arg[1:]
	for i := range len(letters) {
		letter := letters[i : i+1]
		names = append(names, letter)
		switch {
		case strings.Contains(c.attached, letter):
			return names, false, true
		case strings.Contains(c.valued, letter):
			return names, i == len(letters)-1, true
		case !strings.Contains(c.flags, letter):
			return nil, false, false
		}
	}
	return names, false, true
}

func checkDate(args []string, _ *reads) error {
	for i, arg := range args {
		if !strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "+") && (i == 0 || args[i-1] != "-d" && args[i-1] != "--date") {
			return fmt.Errorf("%q would set the clock", clip(arg))
		}
	}
	return nil
}

func checkPrintf(args []string, _ *reads) error {
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		return fmt.Errorf("%q may set a variable", clip(args[0]))
	}
	return nil
}

// findTests are what find may do, and how many words each takes behind it. What
// runs, deletes or writes is not here.
var findTests = map[string]int{
	"-a": 0, "-and": 0, "-o": 0, "-or": 0, "-not": 0, "!": 0, "(": 0, ")": 0, ",": 0,
	"-amin": 1, "-atime": 1, "-cmin": 1, "-ctime": 1, "-daystart": 0, "-depth": 0, "-d": 0, "-empty": 0, "-executable": 0, "-false": 0,
	"-follow": 0, "-gid": 1, "-group": 1, "-ilname": 1, "-iname": 1, "-inum": 1, "-ipath": 1, "-iregex": 1, "-links": 1, "-lname": 1,
	"-ls": 0, "-maxdepth": 1, "-mindepth": 1, "-mmin": 1, "-mount": 0, "-mtime": 1, "-name": 1, "-nogroup": 0, "-nouser": 0, "-path": 1,
	"-perm": 1, "-print": 0, "-print0": 0, "-printf": 1, "-prune": 0, "-quit": 0, "-readable": 0, "-regex": 1, "-regextype": 1, "-size": 1,
	"-true": 0, "-type": 1, "-uid": 1, "-user": 1, "-wholename": 1, "-writable": 0, "-xdev": 0, "-xtype": 1,
}

func checkFind(args []string, r *reads) error {
	i := 0
	for ; i < len(args) && (args[i] == "-H" || args[i] == "-L" || args[i] == "-P"); i++ {
	}
	for ; i < len(args) && !strings.HasPrefix(args[i], "-") && args[i] != "(" && args[i] != "!"; i++ {
		r.paths = append(r.paths, args[i])
	}
	r.here = len(r.paths) == 0
	for ; i < len(args); i++ {
		n, ok := findTests[args[i]]
		if args[i] == "-newer" || args[i] == "-anewer" || args[i] == "-cnewer" || args[i] == "-samefile" {
			n, ok = 1, true
			if i+1 < len(args) {
				r.paths = append(r.paths, args[i+1])
			}
		}
		if !ok {
			return fmt.Errorf("%q is not one of the tests that only look", clip(args[i]))
		}
		if i += n; i >= len(args) {
			return fmt.Errorf("%s has no value", args[i-n])
		}
	}
	return nil
}

// allowedIn tells whether all that is read lies in the folders.
func (r *reads) allowedIn(folders []string, dir string) error {
	if r.here && !withinAny(folders, dir) {
		return fmt.Errorf("%s is outside of what it may read: %s", dir, listed(folders))
	}
	for _, name := range r.paths {
		if name == "-" {
			continue
		}
		path, err := resolve(name, dir)
		if err != nil {
			return err
		}
		if !withinAny(folders, path) {
			return fmt.Errorf("%s is outside of what it may read: %s", clip(path), listed(folders))
		}
	}
	return nil
}

// listed says which folders there are.
func listed(folders []string) string {
	if len(folders) == 0 {
		return "nothing"
	}
	list := slices.Clone(folders)
	for i, f := range list {
		list[i] = filepath.Clean(f)
	}
	return strings.Join(list, ", ")
}
