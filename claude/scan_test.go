package claude

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

// The scanner accepts a value exactly if encoding/json does.
func TestSkipAcceptsWhatJSONAccepts(t *testing.T) {
	for _, text := range []string{
		``, ` `, `0`, `-0`, `-`, `01`, `1.`, `.5`, `1.5`, `1e`, `1e5`, `1E+5`, `1e-`, `+1`, `1e5.2`, `0x1`, `NaN`, `Infinity`,
		`true`, `tru`, `trueish`, `false`, `null`, `nulll`,
		`""`, `"`, `"a`, `"\"`, `"\\"`, `"\u12"`, `"\u12g4"`, `"\u12G4"`, `"\uABcd"`, `"\x"`, "\"\t\"", "\"\x7f\"", "\"\x1f\"", "\"\xff\"", `"é"`,
		`[]`, `[`, `]`, `[1,]`, `[,1]`, `[1 2]`, `[1,2]`, `[[],[[]]]`, `[1}`,
		`{}`, `{`, `}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":{"b":[{}]}}`, `{"a":1]`, `{1:2}`,
		"\ufeff{}", "\v1", "\x00", "1\x00", " \t\r\n1 \t\r\n", `"a" "b"`,
		strings.Repeat("[", 10000) + strings.Repeat("]", 10000),
		strings.Repeat("[", 10001) + strings.Repeat("]", 10001),
		strings.Repeat(`{"a":`, 10000) + `1` + strings.Repeat("}", 10000),
		strings.Repeat(`{"a":`, 10001) + `1` + strings.Repeat("}", 10001),
	} {
		s := scanner{text: text}
		s.skip()
		if got, want := s.err == nil && s.done(), json.Valid([]byte(text)); got != want {
			t.Errorf("%.40q: accepted %v, want %v (%v)", text, got, want, s.err)
		}
	}
}

func TestStringsReadAsInJSON(t *testing.T) {
	for _, text := range []string{
		`""`, `"plain"`, `"seven b"`, `"exactly8"`, `"a bit more than sixteen bytes"`,
		`"tab\tnewline\nquote\"slash\/back\\bell\b\f\r"`,
		`"\u0041\u00e9\u20ac\ud83d\ude00"`, `"😀 é 漢字"`,
		`"\ud83d"`, `"\ude00"`, `"\ud83dx"`, `"\ud83d\n"`, `"\ud83d\u0041"`, `"\ud83d\ud83d\ude00"`, `"\ude00\ud83d"`, `"\uD83D\uDE00"`,
		"\"\xff\"", "\"a\xc3\"", "\"\xc3\\n\xa9\"", "\"\xed\xa0\x80\"", "\"\xff\xfe\xfd ok\"", "\"\\u00e9\xff\"",
		"\"\u2028\u2029\"", "\"\x7f\"", `"\u0000"`,
	} {
		var want string
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		s := scanner{text: text}
		if got := s.str(); got != want || s.err != nil || !s.done() {
			t.Errorf("%s reads as %q, want %q (%v)", text, got, want, s.err)
		}
	}
}

// Every special byte is found at every place of a word and of its rest.
func TestOrdinary(t *testing.T) {
	for size := range 20 {
		for at := range size {
			for c := range 256 {
				text := []byte(strings.Repeat("~", size))
				text[at] = byte(c)
				want := size
				if c < ' ' || c == '"' || c == '\\' || c >= 0x80 {
					want = at
				}
				if got := ordinary(string(text), 0); got != want {
					t.Fatalf("size %d, byte %#x at %d: %d, want %d", size, c, at, got, want)
				}
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	read := func(text string) *scanner { return &scanner{text: text} }
	equal(t, "integer", read(`-42`).integer(), -42)
	equal(t, "exponent", read(`1.5e3`).integer(), 1500)
	equal(t, "largest", read(`9223372036854775807`).integer(), math.MaxInt64)
	equal(t, "cost", read(`0.04127225`).float(), 0.04127225)
	equal(t, "millis", read(`812.5`).millis(), 812500*time.Microsecond)
	equal(t, "unix", read(`1763000000`).unix(time.Second).UTC().Format(time.RFC3339), "2025-11-13T02:13:20Z")
	equal(t, "no moment", read(`null`).unix(time.Second).IsZero(), true)
	for _, text := range []string{`1.5`, `1e400`, `1e30`, `"1"`, `true`} {
		s := read(text)
		if n := s.integer(); n != 0 || s.mismatch == "" || s.err != nil {
			t.Errorf("%s reads as %d, mismatch %q, error %v", text, n, s.mismatch, s.err)
		}
	}
	s := read(`1e300`)
	if d := s.millis(); d != 0 || s.mismatch == "" {
		t.Errorf("endless duration reads as %v", d)
	}
}
