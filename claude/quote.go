package claude

import (
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// quoted reads the string at the scanner's position.
func (s *scanner) quoted() string {
	start := s.pos + 1
	if i := ordinary(s.text, start); i < len(s.text) && s.text[i] == '"' {
		s.pos = i + 1
		return s.text[start:i]
	}
	s.closeQuote()
	if s.err != nil {
		return ""
	}
	inner := s.text[start : s.pos-1]
	if strings.IndexByte(inner, '\\') < 0 && utf8.ValidString(inner) {
		return inner
	}
	return unquote(inner)
}

// closeQuote passes over the string at the scanner's position.
func (s *scanner) closeQuote() {
	i := s.pos + 1
	for {
		i = ordinary(s.text, i)
		if i == len(s.text) {
			s.fail("string without end")
			return
		}
		switch c := s.text[i]; {
		case c == '"':
			s.pos = i + 1
			return
		case c == '\\':
			n := escape(s.text[i:])
			if n == 0 {
				s.pos = i
				s.fail("bad escape in string")
				return
			}
			i += n
		case c < ' ':
			s.pos = i
			s.fail("control character in string")
			return
		default:
			for i < len(s.text) && s.text[i] >= utf8.RuneSelf {
				i++
			}
		}
	}
}

// ordinary returns the index of the first byte of text at or after i that is
// a quote, a backslash, a control character or not ASCII. It looks at eight
// bytes at a time: of the high bits of special, the lowest that is set marks
// the first such byte (those above it may be borrows of a subtraction, and a
// byte that is not ASCII is special whatever they say).
func ordinary(text string, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for i+8 <= len(text) {
		b := text[i : i+8]
		x := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
		quote, slash := x^('"'*ones), x^('\\'*ones)
		special := (x | (x - ' '*ones) | (quote - ones) | (slash - ones)) & highs
		if special != 0 {
			return i + bits.TrailingZeros64(special)/8
		}
		i += 8
	}
	for i < len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
		i++
	}
	return i
}

// escape returns the length of the escape that text begins with, zero if it
// is none.
func escape(text string) int {
	if len(text) < 2 {
		return 0
	}
	switch text[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(text); ok {
			return 6
		}
	}
	return 0
}

// hex4 reads the \uXXXX that text begins with.
func hex4(text string) (r rune, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	for _, c := range []byte(text[2:6]) {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unquote resolves the escapes of a valid JSON string. Half a surrogate pair
// and each byte that is not UTF-8 become U+FFFD, as in encoding/json.
func unquote(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for {
		i := strings.IndexByte(text, '\\')
		if i < 0 {
			writeValid(&b, text)
			return b.String()
		}
		writeValid(&b, text[:i])
		text = text[i:]
		n := 2
		switch c := text[1]; c {
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'u':
			n = 6
			r, _ := hex4(text)
			if utf16.IsSurrogate(r) {
				low, _ := hex4(text[6:])
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					n = 12
				}
			}
			b.WriteRune(r)
		default:
			b.WriteByte(c)
		}
		text = text[n:]
	}
}

func writeValid(b *strings.Builder, text string) {
	if utf8.ValidString(text) {
		b.WriteString(text)
		return
	}
	for _, r := range text {
		b.WriteRune(r)
	}
}
