package claude

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// maxDepth is how deep arrays and objects may nest, as in encoding/json.
const maxDepth = 10000

// scanner reads one JSON text from front to back. It accepts what
// encoding/json accepts and no more, also in what it passes over. Strings
// that hold no escape are substrings of the text.
//
// A value of another JSON type than its reader wants is passed over and noted
// in mismatch. A syntax error moves the scanner to the end and stays in err:
// readers then return zero values, and loops end.
//
//	for ok := s.object(); ok; ok = s.more('}') {
//		switch s.key() {
//		case "id":
//			id = s.str()
//		default:
//			s.skip()
//		}
//	}
type scanner struct {
	text     string
	pos      int
	depth    int
	name     [2]int // where the key read last stands in text
	mismatch string // the first value of an unexpected type
	err      error
}

// token returns the first byte of the next token, or zero at the end.
func (s *scanner) token() byte {
	if s.pos < len(s.text) && s.text[s.pos] > ' ' {
		return s.text[s.pos]
	}
	return s.space()
}

// space passes over white space and returns what token does.
func (s *scanner) space() byte {
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
		s.pos++
	}
	return 0
}

// done tells whether nothing but white space is left.
func (s *scanner) done() bool {
	s.token()
	return s.pos == len(s.text)
}

func (s *scanner) fail(problem string) {
	if s.err == nil {
		s.err = fmt.Errorf("%s at byte %d", problem, s.pos)
	}
	s.pos = len(s.text)
}

// object enters an object and tells whether a key follows.
func (s *scanner) object() bool {
	if s.token() != '{' {
		s.misfit("object")
		return false
	}
	return s.enter('}')
}

// array enters an array and tells whether an element follows.
func (s *scanner) array() bool {
	if s.token() != '[' {
		s.misfit("array")
		return false
	}
	return s.enter(']')
}

func (s *scanner) enter(end byte) bool {
	s.pos++
	s.depth++
	if s.depth > maxDepth {
		s.fail("nested too deep")
		return false
	}
	if s.token() == end {
		s.pos++
		s.depth--
		return false
	}
	return true
}

// more passes the comma before the next member, or the end of the object or
// array, and tells which.
func (s *scanner) more(end byte) bool {
	if s.at(',') {
		s.pos++
		return true
	}
	return s.last(end)
}

// last is more where no comma stands at once.
func (s *scanner) last(end byte) bool {
	switch s.token() {
	case ',':
		s.pos++
		return true
	case end:
		s.pos++
		s.depth--
	default:
		s.fail("want comma or " + string(rune(end)))
	}
	return false
}

// key reads the key of a member and its colon.
func (s *scanner) key() string {
	if s.token() != '"' {
		s.fail("want a key")
		return ""
	}
	start := s.pos + 1
	s.name[0] = start
	end := ordinary(s.text, start)
	if rest := s.text[end:]; len(rest) > 1 && rest[0] == '"' && rest[1] == ':' {
		s.name[1], s.pos = end, end+2 // as the CLI writes them
		return s.text[start:end]
	}
	key := s.quoted()
	s.name[1] = s.pos - 1
	s.colon()
	return key
}

func (s *scanner) colon() {
	if s.token() != ':' {
		s.fail("want a colon")
		return
	}
	s.pos++
}

// misfit passes over a value that is not what its reader wants. Null counts
// as absent.
func (s *scanner) misfit(want string) {
	if c := s.token(); c != 'n' {
		s.note(want, c)
	}
	s.skip()
}

func (s *scanner) note(want string, first byte) {
	if s.mismatch != "" || s.err != nil {
		return
	}
	got := "number"
	switch first {
	case '{':
		got = "object"
	case '[':
		got = "array"
	case '"':
		got = "string"
	case 't', 'f':
		got = "boolean"
	case 'n':
		got = "null"
	}
	s.mismatch = s.text[s.name[0]:s.name[1]] + ": want " + want + ", got " + got
}

func (s *scanner) str() string {
	switch s.token() {
	case '"':
		return s.quoted()
	case 'n':
		s.word("null")
	default:
		s.misfit("string")
	}
	return ""
}

func (s *scanner) strs() (list []string) {
	for ok := s.array(); ok; ok = s.more(']') {
		if s.token() != '"' {
			s.misfit("string")
			continue
		}
		list = append(list, s.quoted())
	}
	return list
}

func (s *scanner) boolean() bool {
	switch s.token() {
	case 't':
		s.word("true")
		return true
	case 'f':
		s.word("false")
		return false
	}
	s.misfit("boolean")
	return false
}

// integer accepts every spelling of a whole number, such as 2e3.
func (s *scanner) integer() int {
	if n, ok := s.count(); ok {
		return n
	}
	if !s.numeric() {
		s.misfit("number")
		return 0
	}
	text := s.number()
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		s.note("whole number", '0')
		return 0
	}
	return int(f)
}

// count reads a number of one to 15 digits and nothing else, as most are.
func (s *scanner) count() (n int, ok bool) {
	s.token()
	i := s.pos
	for i < len(s.text) && i < s.pos+15 && '0' <= s.text[i] && s.text[i] <= '9' {
		n = 10*n + int(s.text[i]-'0')
		i++
	}
	if i == s.pos || i == len(s.text) || s.text[i] != ',' && s.text[i] != '}' || i > s.pos+1 && s.text[s.pos] == '0' {
		return 0, false
	}
	s.pos = i
	return n, true
}

func (s *scanner) float() float64 {
	if !s.numeric() {
		s.misfit("number")
		return 0
	}
	f, err := strconv.ParseFloat(s.number(), 64)
	if err != nil {
		s.note("number in range", '0')
		return 0
	}
	return f
}

// millis reads a number of milliseconds.
func (s *scanner) millis() time.Duration { return s.duration(time.Millisecond) }

// duration reads a number of units.
func (s *scanner) duration(unit time.Duration) time.Duration {
	f := s.float() * float64(unit)
	if math.Abs(f) >= math.MaxInt64 {
		s.note("duration in range", '0')
		return 0
	}
	return time.Duration(f)
}

// unix reads a moment as a number of units since 1970; absent is the zero
// Time.
func (s *scanner) unix(unit time.Duration) time.Time {
	if !s.numeric() {
		s.misfit("number")
		return time.Time{}
	}
	f := s.float() * float64(unit)
	if f == 0 || math.Abs(f) >= math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(0, int64(f))
}

// optBool returns nil for what is not a boolean.
func (s *scanner) optBool() *bool {
	if c := s.token(); c != 't' && c != 'f' {
		s.misfit("boolean")
		return nil
	}
	return new(s.boolean())
}

// optInt returns nil for what is not a number.
func (s *scanner) optInt() *int {
	if !s.numeric() {
		s.misfit("number")
		return nil
	}
	return new(s.integer())
}

// optFloat returns nil for what is not a number.
func (s *scanner) optFloat() *float64 {
	if !s.numeric() {
		s.misfit("number")
		return nil
	}
	return new(s.float())
}

// raw returns a copy of the value as it stands; null is nil.
func (s *scanner) raw() json.RawMessage {
	if s.token() == 'n' {
		s.skip()
		return nil
	}
	return json.RawMessage(s.span())
}

// span passes over a value and returns its text.
func (s *scanner) span() string {
	s.token()
	start := s.pos
	s.skip()
	return s.text[start:s.pos]
}

// skip passes over a value.
func (s *scanner) skip() {
	switch s.token() {
	case '"':
		s.closeQuote()
	case '{':
		for ok := s.enter('}'); ok; ok = s.more('}') {
			if s.token() != '"' {
				s.fail("want a key")
				return
			}
			s.closeQuote()
			s.colon()
			s.skip()
		}
	case '[':
		for ok := s.enter(']'); ok; ok = s.more(']') {
			s.skip()
		}
	case 't':
		s.word("true")
	case 'f':
		s.word("false")
	case 'n':
		s.word("null")
	default:
		s.number()
	}
}

func (s *scanner) word(word string) {
	if !strings.HasPrefix(s.text[s.pos:], word) {
		s.fail("want " + word)
		return
	}
	s.pos += len(word)
}

// numeric tells whether the next token is a number.
func (s *scanner) numeric() bool {
	c := s.token()
	return c == '-' || '0' <= c && c <= '9'
}

// number passes over a number and returns its text, "0" if there is none.
func (s *scanner) number() string {
	start := s.pos
	if s.at('-') {
		s.pos++
	}
	if s.at('0') {
		s.pos++
	} else if !s.digits() {
		return "0"
	}
	if s.at('.') {
		s.pos++
		if !s.digits() {
			return "0"
		}
	}
	if s.at('e') || s.at('E') {
		s.pos++
		if s.at('+') || s.at('-') {
			s.pos++
		}
		if !s.digits() {
			return "0"
		}
	}
	return s.text[start:s.pos]
}

func (s *scanner) at(c byte) bool { return s.pos < len(s.text) && s.text[s.pos] == c }

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.text) && '0' <= s.text[s.pos] && s.text[s.pos] <= '9' {
		s.pos++
	}
	if s.pos == start {
		s.fail("want a value")
		return false
	}
	return true
}
