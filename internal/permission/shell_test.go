package permission

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestShellWords(t *testing.T) {
	for text, want := range map[string][]string{
		`a b  c`:             {"a", "b", "c"},
		`a 'b c' "d e"`:      {"a", "b c", "d e"},
		`a b\ c`:             {"a", "b c"},
		`a'b'"c"\d`:          {"abcd"},
		`a '' ""`:            {"a", "", ""},
		`a "\"\\\$\x"`:       {"a", `"\$\x`},
		`a '\'`:              {"a", `\`},
		"a 'b\nc'":           {"a", "b\nc"},
		`a b#c`:              {"a", "b#c"},
		`a "$"`:              {"a", "$"},
		`a é 日`:              {"a", "é", "日"},
		"a\u00a0b":           {"a\u00a0b"},
		`HEAD~1 HEAD^ a=b`:   {"HEAD~1", "HEAD^", "a=b"},
		`src/*.go a?b x[ab]`: {"src/*.go", "a?b", "x[ab]"},
	} {
		l := parseLine(text)
		if l.opaque != "" || l.joined != "" || len(l.parts) != 1 || !slices.Equal(texts(l.parts[0].words), want) {
			t.Errorf("%s is %+v, want %q", text, l, want)
		}
	}
	l := parseLine("a b;c 2>&1 | d >/dev/null x && e\nf & g")
	var parts []string
	for _, p := range l.parts {
		parts = append(parts, p.text)
	}
	if want := []string{"a b", "c", "d x", "e", "f", "g"}; l.opaque != "" || !slices.Equal(parts, want) {
		t.Errorf("the parts are %q of %+v", parts, l)
	}
}

// What Limited allows has nothing that a shell reads as more than words, and a
// shell that is given it reads the same words.
func FuzzShellWords(f *testing.F) {
	for _, seed := range []string{"ls", `ls "a;b"`, `ls $'a\''; rm #'`, `ls 'a\'; rm`, `ls \; x`, "ls a*b", "ls 'a'b\"c\"", "cat \"x$\"", "ls \"\\$x\"", "echo a\\\"b", "cat \u00a0", "\u00a0ls", "ls a~b a=b HEAD^", "\nls"} {
		f.Add(seed)
	}
	sh, _ := exec.LookPath("bash")
	p := Policy{Read: []string{"/"}, Bash: Limited}
	f.Fuzz(func(t *testing.T, command string) {
		command = strings.ToValidUTF8(command, "\ufffd") // as JSON has it
		if v := varietyOf(command); !v.tooMuch() && !slices.Contains(v.list, trim(command)) {
			t.Fatalf("%q is not among what it may run: %q", command, v.list)
		}
		if p.Decide(bash(command)).Verdict != Allow {
			return
		}
		bare, rest := "", command
		for rest != "" {
			switch c := rest[0]; {
			case c == '\\' && len(rest) > 1:
				rest = rest[2:]
			case c == '\'':
				end := strings.IndexByte(rest[1:], '\'')
				if end < 0 {
					t.Fatalf("%q has an open quote", command)
				}
				rest = rest[end+2:]
			case c == '"':
				end := 1
				for end < len(rest) && rest[end] != '"' {
					if rest[end] == '\\' {
						end++
					} else if rest[end] == '`' || rest[end] == '$' && !dollarIsPlain(rest[end+1:]) {
						t.Fatalf("%q substitutes in quotes", command)
					}
					end++
				}
				if end >= len(rest) {
					t.Fatalf("%q has an open quote", command)
				}
				rest = rest[end+1:]
			default:
				bare, rest = bare+string(c), rest[1:]
			}
		}
		if strings.ContainsAny(trim(bare), ";&|<>(){}!`$\n\r") {
			t.Errorf("%q is allowed, with %q in it", command, bare)
		}
		words := parseLine(trim(command)).parts[0].words
		if sh == "" || slices.ContainsFunc(words, func(w word) bool { return w.glob }) {
			return
		}
		// The command is given to the shell as the arguments of printf, so that
		// it reads the words and runs nothing.
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		cmd := exec.CommandContext(ctx, sh, "-f", "-c", "printf '%s\\0' "+trim(command)) // lines before it would make it a command of its own
		cmd.Env = []string{"LC_ALL=C.UTF-8"}
		out, err := cmd.Output()
		if want := strings.Join(texts(words), "\x00") + "\x00"; err != nil || string(out) != want {
			t.Errorf("%q: the shell reads %q, %v; we read %q", command, out, err, want)
		}
	})
}
