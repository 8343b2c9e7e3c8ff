package permission

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var reviewer = Policy{Role: "reviewer", Read: []string{"/w", "/logs"}, Bash: Limited, Grant: Grant{Mode: ModeDefault}}

// What a limited shell runs.
func TestLimitedAllows(t *testing.T) {
	for _, command := range []string{
		"ls", "ls -la src", "ls --color=auto /logs", "cat a.go b.go", "cat -- -n", "cat 'a b.go' \"c d\"", `cat a\ b`, "head -20 a", "head -n 5 a", "tail -n5 /logs/x",
		"wc -l src/*.go", "wc -l ./*.go", "grep -rn 'func main' .", "grep -e a -e b c", "grep -C3 x y", "grep --include='*.go' -r x", "grep '/api/v1' a",
		"grep 'a;b|c>d$(e)' f", `grep "a\$b" f`, `grep "end$" f`, "rg -n --glob '*.go' TODO", "rg --files src", "rg -e x /w/src",
		"find . -name '*.go' -type f", `find . \( -name a -o -name b \) -print`, "find /w -newer /logs/a", "sort -k2 -n a", "uniq -c a", "diff -u a b", "cut -d: -f1 a",
		"git status", "git status -sb", "git log --oneline -20", "git log main..HEAD -- src", "git show HEAD~1:a.go", "git show 'HEAD@{1}'", "git diff --stat HEAD^ HEAD",
		"git --no-pager diff -U10", "git branch", "git branch -a", "git branch --list 'x*'", "git tag -l 'v*'", "git blame -L 1,5 a.go", "git stash list",
		"git remote -v", "git rev-parse --show-toplevel", "git ls-files", "git grep -n x", "pwd", "echo 'hi; there'", "echo -n x", "date", "date +%s", "stat a", "which go",
		"printf '%s' x", "true", "du -sh .", "file a", "sha256sum a", "tree -L 2",
	} {
		if got := reviewer.Decide(bash(command)); got.Verdict != Allow {
			t.Errorf("%s: %+v", command, got)
		}
	}
}

// What it does not, and why.
func TestLimitedRefuses(t *testing.T) {
	for command, why := range map[string]string{
		"rm -rf x":                         `"rm" is not one of the commands that only read`,
		"go test ./...":                    `"go" is not`,
		"awk 'BEGIN{system(\"x\")}' a":     `"awk" is not`,
		"sed -i s/a/b/ x":                  `"sed" is not`,
		"xargs rm":                         `"xargs" is not`,
		"./ls":                             `"./ls" is not`,
		"/bin/ls":                          `"/bin/ls" is not`,
		"ls | head":                        "a pipe",
		"ls |& head":                       "a pipe",
		"ls; ls":                           "holds ;",
		"ls && ls":                         "&&",
		"ls || ls":                         "||",
		"ls &":                             "the background",
		"ls\nls":                           "a line break",
		"ls > x":                           "a redirection",
		"ls >x":                            "a redirection",
		"ls 2>&1":                          "a redirection",
		"cat < x":                          "a redirection",
		"cat <<EOF\nx\nEOF":                "a redirection",
		"cat <(ls)":                        "a redirection",
		"(ls)":                             "a subshell",
		"{ ls; }":                          "braces",
		"ls {a,b}":                         "braces",
		"ls $HOME":                         "a variable",
		"ls \"$HOME\"":                     "a variable",
		"ls $(pwd)":                        "a substitution",
		"ls `pwd`":                         "a substitution",
		"ls \"`pwd`\"":                     "a substitution",
		"ls $'a'":                          "a substitution",
		"ls ~":                             "a home",
		"ls ~root":                         "a home",
		"ls a=~":                           "a home",
		"! ls":                             "an exclamation mark",
		"ls # x":                           "a comment",
		"ls =ls":                           "the path of a command",
		"LS_COLORS=x ls":                   "sets a variable",
		"PATH=. ls":                        "sets a variable",
		"ls *":                             "may become an option",
		"cat ?x":                           "may become an option",
		"cat [a]":                          "may become an option",
		"cat -*":                           "may become an option",
		"cat .*":                           "may become ..",
		"cat src/.*/x":                     "may become ..",
		"cat 'x":                           "a quote that is not closed",
		"cat x\\":                          "a backslash",
		"cat x\\\ny":                       "a backslash",
		"cat x\ry":                         "a control character",
		"cat \x00":                         "zero byte",
		"cat /etc/passwd":                  "/etc/passwd is outside of what it may read: /w, /logs",
		"cat ../x":                         "/x is outside",
		"cat src/../../etc/passwd":         "/etc/passwd is outside",
		"cat /w/../etc/passwd":             "/etc/passwd is outside",
		"cat a /etc/*":                     "/etc/* is outside",
		"cat '~/x'":                        "whose home",
		"ls /":                             "/ is outside",
		"grep root /etc/passwd":            "/etc/passwd is outside",
		"grep -e root /etc/passwd":         "/etc/passwd is outside",
		"grep -f /etc/passwd x":            `the option "-f"`,
		"grep --file=/etc/passwd x":        `the option "--file=/etc/passwd"`,
		"grep -C 3 /etc/passwd":            "/etc/passwd is outside",
		"grep a/b* /etc/x":                 "/etc/x is outside",
		"head x -n /etc/passwd":            "write options first",
		"tail -f x":                        `the option "-f"`,
		"sort -o x y":                      `the option "-o"`,
		"sort --output=x y":                `the option "--output=x"`,
		"sort --outp=x y":                  `the option "--outp=x"`,
		"sort y -ox":                       `the option "-ox"`,
		"sort --compress-program=x y":      "the option",
		"sort --files0-from=x":             "the option",
		"wc --files0-from=x":               "the option",
		"uniq a b":                         `it would write "b"`,
		"date 01010101":                    "would set the clock",
		"date -s x":                        "would set the clock",
		"date -f x":                        "would set the clock",
		"printf -v PATH x":                 "may set a variable",
		"tree -o x":                        `the option "-o"`,
		"tree -R -L 1":                     `the option "-R"`,
		"rg --pre ./x y":                   `the option "--pre"`,
		"rg --pre=./x y":                   "the option",
		"rg -z x":                          `the option "-z"`,
		"rg x /etc":                        "/etc is outside",
		"rg -f /etc/passwd":                `the option "-f"`,
		"find . -exec rm {} +":             "braces",
		"find . -exec rm '{}' +":           `"-exec" is not`,
		"find . -execdir x ';'":            `"-execdir" is not`,
		"find . -ok x ';'":                 `"-ok" is not`,
		"find . -delete":                   `"-delete" is not`,
		"find . -fprint x":                 `"-fprint" is not`,
		"find . -fls x":                    `"-fls" is not`,
		"find . -fprintf x y":              `"-fprintf" is not`,
		"find -files0-from x":              `"-files0-from" is not`,
		"find / -name x":                   "/ is outside",
		"find . -name":                     "has no value",
		"find . -newer /etc/x":             "/etc/x is outside",
		"git commit -m x":                  `"commit" is not one of its commands`,
		"git -c core.pager=x log":          `the option "-c"`,
		"git -C / log":                     `the option "-C"`,
		"git --exec-path=x log":            "the option",
		"git --git-dir=/x log":             "the option",
		"git diff --output=x":              `the option "--output=x"`,
		"git diff --outp=x":                "the option",
		"git log --output=x":               "the option",
		"git diff --ext-diff":              "the option",
		"git log --textconv":               "the option",
		"git diff --no-index a b":          "the option",
		"git diff /etc/passwd /dev/null":   "/etc/passwd is outside",
		"git diff a ../../etc/passwd":      "/etc/passwd is outside",
		"git grep -O x":                    `the option "-O"`,
		"git grep -Oless x":                "the option",
		"git grep --open-files-in-pager x": "the option",
		"git branch x":                     `"x" would be made`,
		"git branch -D x":                  "would be made",
		"git branch --list -D x":           `the option "-D"`,
		"git branch -m x":                  "would be made",
		"git tag v1":                       `"v1" would be made`,
		"git tag -d v1":                    "would be made",
		"git remote add x y":               `"add" is not`,
		"git remote -v update":             `"update" is not`,
		"git stash":                        "only this reads",
		"git stash pop":                    "only this reads",
		"git worktree add x":               "only this reads",
		"git reflog expire --all":          `"expire" is not`,
		"git reflog --all expire":          `"expire" is not`,
		"git config --list":                `"config" is not`,
		"git log --format=%GK":             "a signature",
		"git log --show-signature":         "the option",
		"git fetch":                        `"fetch" is not`,
	} {
		got := reviewer.Decide(bash(command))
		if got.Verdict != Deny || !strings.Contains(got.Reason, why) {
			t.Errorf("%q: %+v, want %q", command, got, why)
		}
	}
	if got := reviewer.Decide(Call{Tool: "Bash", Input: bash("git status").Input, Dir: "/elsewhere"}); got.Verdict != Deny {
		t.Errorf("git elsewhere: %+v", got)
	}
	if got := reviewer.Decide(call("Monitor", "command", "ls")); got.Verdict != Deny {
		t.Errorf("another shell: %+v", got)
	}
	for _, input := range []string{`{"command":"ls","dangerouslyDisableSandbox":true}`, `{"command":"ls","COMMAND":"rm x"}`, `{"command":"ls","command":"rm x"}`,
		`{"Command":"ls"}`, `{"command":["ls"]}`, `{"command":null}`, `{}`, ``, `[]`, `{"command":"ls"} {"command":"rm"}`, `{"command":"ls"`} {
		if got := reviewer.Decide(Call{Tool: "Bash", Input: []byte(input), Dir: "/w"}); got.Verdict != Deny {
			t.Errorf("%s: %+v", input, got)
		}
	}
}

// Every command of the table, told to write with all the options that a shell
// was seen to write with, leaves the folder as it was, whenever it is allowed.
func TestLimitedCommandsWriteNothing(t *testing.T) {
	sh, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash: ", err)
	}
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := Policy{Read: []string{dir}, Bash: Limited}
	ran := 0
	for name := range limitedCommands {
		for _, args := range []string{"", "a", "a b", "a new", "-o new a", "-onew a", "--output=new a", "--output new a", "-- a new", "-w new", "a -o new", "-O new a", "new"} {
			command := strings.TrimSpace(name + " " + args)
			if p.Decide(Call{Tool: "Bash", Input: bash(command).Input, Dir: dir}).Verdict != Allow {
				continue
			}
			ran++
			cmd := exec.Command(sh, "-c", command)
			cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir)}
			_ = cmd.Run() // many of them are wrong, or not installed
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 2 {
				t.Fatalf("after %q there are %v, %v", command, entries, err)
			}
		}
	}
	if ran < 100 {
		t.Errorf("only %d commands were allowed", ran)
	}
}
