package cli

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"plain", "good morning\nyou", "good morning\nyou"},
		{"tab", "a\tb", "a    b"},
		{"line ends", "a\r\nb\rc\vd\u0085e\u2028f", "a\nb\nc\nd\ne\nf"},
		{"colours", "\x1b[1;31mred\x1b[m!", "red!"},
		{"8-bit sequence", "\u009b31mred", "red"},
		{"8-bit byte", "\x9b31mred", "\ufffd31mred"},
		{"title", "\x1b]0;you are root\x07$", "$"},
		{"link", "\x1b]8;;http://x\x1b\\here\x1b]8;;\x1b\\", "here"},
		{"string without an end", "\x1b]0;rest\nof it", "0;rest\nof it"},
		{"device control", "\x1bPq#1\x1b\\x", "x"},
		{"sequence that is broken off", "\x1b[12\x1b[3mx\x1b[", "x"},
		{"sequence with a control in it", "\x1b[1\x08mx", "\ufffdmx"},
		{"two characters", "\x1bcx\x1b7y\x1b", "xy"},
		{"controls", "a\x00b\bc\x7f", "a\ufffdb\ufffdc\ufffd"},
		{"no UTF-8", "a\xffb\xc3", "a\ufffdb\ufffd"},
		{"bidi", "\u202eabc\u202c\u2066d\u2069\u200f", "abcd"},
		{"unseen", "a\u200bb\ufeffc\u00add\U000e0041", "abcd"},
		{"joiners stay", "می\u200cخواهم", "می\u200cخواهم"},
		{"marks", "e\u0301", "e\u0301"},
		{"a tower of marks", "e" + strings.Repeat("\u0301", 99) + "f", "e" + strings.Repeat("\u0301", maxMarks) + "f"},
		{"a tower of joiners", "e" + strings.Repeat("\u200d\u0301", 99), "e" + strings.Repeat("\u200d\u0301", maxMarks/2)},
		{"unseen between marks", "e" + strings.Repeat("\u0301\u200b", 99), "e" + strings.Repeat("\u0301", maxMarks)},
		{"variations", "❤\ufe0f", "❤"},
		{"private", "\ue0b0", "\ufffd"},
		{"spaces", "a\u00a0b\u3000c", "a b c"},
	} {
		if got := printable(test.text); got != test.want {
			t.Errorf("%s: %q becomes %q, want %q", test.name, test.text, got, test.want)
		}
	}
}

func TestTextWidth(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "abc": 3, "é": 1, "e\u0301": 1, "東京": 4, "ｱ": 1, "Ａ": 2, "한": 2, "😀": 2, "…": 1, "✓": 1, "●": 1, "└": 1, "\ufffd": 1,
	} {
		if got := textWidth(text); got != want {
			t.Errorf("%q is %d wide, want %d", text, got, want)
		}
	}
}

func TestCutText(t *testing.T) {
	for _, test := range []struct {
		text string
		cols int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"abcd", 1, "…"}, {"abcd", 0, ""}, {"", 0, ""},
		{"東京都", 6, "東京都"}, {"東京都", 5, "東京…"}, {"東京都", 4, "東…"}, {"東京都", 2, "…"},
		{"e\u0301e\u0301", 2, "e\u0301e\u0301"}, {"e\u0301e\u0301e", 2, "e\u0301…"},
	} {
		if got := cutText(test.text, test.cols); got != test.want {
			t.Errorf("%q in %d columns is %q, want %q", test.text, test.cols, got, test.want)
		}
	}
}

func TestWrapText(t *testing.T) {
	for _, test := range []struct {
		text string
		cols int
		want []string
	}{
		{"one two three", 20, []string{"one two three"}},
		{"one two three", 7, []string{"one two", "three"}},
		{"one two three", 8, []string{"one two", "three"}},
		{"one  two", 4, []string{"one", "two"}},
		{"  - indented words", 12, []string{"  - indented", "words"}},
		{"a\n\nb\n\n", 9, []string{"a", "", "b"}},
		{"abcdefgh", 3, []string{"abc", "def", "gh"}},
		{"東京都", 3, []string{"東", "京", "都"}},
		{"a東b", 1, []string{"a", "", "b"}},
		{"", 5, []string{""}},
	} {
		if got := wrapText(test.text, test.cols); !slices.Equal(got, test.want) {
			t.Errorf("%q in %d columns is %q, want %q", test.text, test.cols, got, test.want)
		}
	}
}

// Whatever is said, printable says it without anything that a terminal obeys,
// says it again the same, and it can be wrapped and cut to any width.
func FuzzPrintable(f *testing.F) {
	f.Add(hostile, 7)
	f.Add("a東\u0301\x1b[31m \x1b]x\x07", 2)
	f.Fuzz(func(t *testing.T, text string, cols int) {
		clean := printable(text)
		if !utf8.ValidString(clean) {
			t.Fatalf("no UTF-8: %q", clean)
		}
		for _, r := range clean {
			if r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control)) {
				t.Fatalf("%q in %q", r, clean)
			}
		}
		if again := printable(clean); again != clean {
			t.Fatalf("%q becomes %q", clean, again)
		}
		cols = 1 + (cols&0xff)%40
		for _, l := range wrapText(clean, cols) {
			if strings.Contains(l, "\n") || textWidth(l) > cols {
				t.Fatalf("%q in %d columns", l, cols)
			}
		}
		for l := range strings.SplitSeq(clean, "\n") {
			if cut := cutText(l, cols); textWidth(cut) > cols {
				t.Fatalf("%q is cut to %q, for %d columns", l, cut, cols)
			}
		}
	})
}
