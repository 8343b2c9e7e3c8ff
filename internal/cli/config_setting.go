package cli

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/permission"
)

// setting is where a value of the config is kept.
type setting interface {
	// set keeps what the words say: exactly one, unless the setting is a list.
	// If it fails, the error says what is wanted, and nothing is changed.
	set(words []string, at place) error
	// get returns the value for people and JSON; nil if none is set.
	get() any
	want() string
}

// place is what relative names of files are relative to.
type place struct {
	dir  string
	home string // what ~ stands for; empty means nothing
}

// maxCount is more than any count needs, and fits everywhere.
const maxCount = 1_000_000

// textSetting is any text without control characters.
type textSetting struct {
	p    *string
	what string
}

func (s textSetting) want() string { return s.what }
func (s textSetting) get() any     { return unlessZero(*s.p) }

func (s textSetting) set(words []string, _ place) error {
	if err := checkText(words[0]); err != nil {
		return fmt.Errorf("want %s%w", s.what, err)
	}
	*s.p = words[0]
	return nil
}

// checkText returns how an error about bad text goes on.
func checkText(word string) error {
	switch {
	case strings.TrimSpace(word) == "":
		return errors.New(", not nothing")
	case strings.ContainsFunc(word, unicode.IsControl):
		return errors.New(" without control characters")
	}
	return nil
}

// choiceSetting is one of a few words.
type choiceSetting struct {
	p  *string
	of []string
}

func (s choiceSetting) want() string { return orList(s.of) }
func (s choiceSetting) get() any     { return unlessZero(*s.p) }

func (s choiceSetting) set(words []string, _ place) error {
	if !slices.Contains(s.of, words[0]) {
		return fmt.Errorf("want %s", s.want())
	}
	*s.p = words[0]
	return nil
}

// entrySetting is one text in a map.
type entrySetting struct {
	m    map[string]string
	name string
	what string
}

func (s entrySetting) want() string { return s.what }
func (s entrySetting) get() any     { return unlessZero(s.m[s.name]) }

func (s entrySetting) set(words []string, _ place) error {
	if err := checkText(words[0]); err != nil {
		return fmt.Errorf("want %s%w", s.what, err)
	}
	s.m[s.name] = words[0]
	return nil
}

// variableSetting is one variable of an environment, which is made when it is needed.
type variableSetting struct {
	env  *map[string]string
	name string
}

func (s variableSetting) want() string { return "text" }

func (s variableSetting) get() any {
	if v, ok := (*s.env)[s.name]; ok {
		return v
	}
	return nil
}

func (s variableSetting) set(words []string, _ place) error {
	if !isVariable(s.name) {
		return fmt.Errorf("%.60q is no name of a variable; want letters, digits and _", s.name)
	}
	if strings.ContainsRune(words[0], 0) {
		return errors.New("want text without NUL")
	}
	if *s.env == nil {
		*s.env = map[string]string{}
	}
	(*s.env)[s.name] = words[0]
	return nil
}

func isVariable(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// checkVariable tells what is no name of variables; a * at its end stands for
// anything.
func checkVariable(word string) error {
	if name, _ := strings.CutSuffix(word, "*"); !isVariable(name) {
		return fmt.Errorf("%.60q is no name of a variable; want letters, digits and _, and * at the end for all that begin so", word)
	}
	return nil
}

// countSetting is a whole number that is not less than min.
type countSetting struct {
	p   *int
	min int
}

func (s countSetting) want() string { return fmt.Sprintf("a whole number, %d or more", s.min) }
func (s countSetting) get() any     { return *s.p }

func (s countSetting) set(words []string, _ place) error {
	n, err := strconv.Atoi(words[0])
	if errors.Is(err, strconv.ErrRange) || err == nil && n > maxCount {
		return fmt.Errorf("want %d at most", maxCount)
	}
	if err != nil || n < s.min {
		return fmt.Errorf("want %s", s.want())
	}
	*s.p = n
	return nil
}

// amountSetting is a number, zero or more.
type amountSetting struct{ p *float64 }

func (s amountSetting) want() string { return "a number, 0 or more" }
func (s amountSetting) get() any     { return *s.p }

func (s amountSetting) set(words []string, _ place) error {
	n, err := strconv.ParseFloat(words[0], 64)
	if err != nil || !(n >= 0) || math.IsInf(n, 0) || n > 1e12 { // also not a number
		return fmt.Errorf("want %s", s.want())
	}
	*s.p = n
	return nil
}

// sizeSetting is a number of bytes, zero or more.
type sizeSetting struct{ p *int64 }

func (s sizeSetting) want() string { return "a size, such as 512M or 10G" }
func (s sizeSetting) get() any     { return sizeText(*s.p) }

func (s sizeSetting) set(words []string, _ place) error {
	n, err := parseSize(words[0])
	if err != nil {
		return fmt.Errorf("want %s", s.want())
	}
	*s.p = n
	return nil
}

// sizeUnits are the units of sizes: each is 1024 of the one before it.
const sizeUnits = "KMGT"

// parseSize reads a number of bytes, with its unit or without.
func parseSize(text string) (int64, error) {
	text = strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(text), "B"), "I")
	factor := int64(1)
	if text != "" {
		if i := strings.IndexByte(sizeUnits, text[len(text)-1]); i >= 0 {
			text, factor = text[:len(text)-1], int64(1)<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && (n < 0 || n > math.MaxInt64/factor) {
		err = strconv.ErrRange
	}
	return n * factor, err
}

// sizeText is a number of bytes as people write it, if that is exact.
func sizeText(n int64) string {
	unit := ""
	for i := 0; i < len(sizeUnits) && n != 0 && n%1024 == 0; i++ {
		n, unit = n/1024, sizeUnits[i:i+1]
	}
	return strconv.FormatInt(n, 10) + unit
}

// spanSetting is a duration that is not less than min.
type spanSetting struct {
	p   *time.Duration
	min time.Duration
}

func (s spanSetting) get() any { return spanText(*s.p) }

func (s spanSetting) want() string {
	if s.min > 0 {
		return "a duration, more than 0s"
	}
	return "a duration, 0s or more"
}

func (s spanSetting) set(words []string, _ place) error {
	d, err := time.ParseDuration(words[0])
	if _, isNumber := strconv.Atoi(words[0]); isNumber == nil {
		return fmt.Errorf("want %s, with its unit, such as \"%ss\"", s.want(), strings.TrimPrefix(words[0], "-"))
	}
	if err != nil {
		return fmt.Errorf("want %s, such as 90s, 10m or 1h30m", s.want())
	}
	if d < s.min {
		return fmt.Errorf("want %s", s.want())
	}
	*s.p = d
	return nil
}

// spanText is d as people write it.
func spanText(d time.Duration) string {
	t := d.String()
	if strings.HasSuffix(t, "m0s") {
		t = strings.TrimSuffix(t, "0s")
	}
	if strings.HasSuffix(t, "h0m") {
		t = strings.TrimSuffix(t, "0m")
	}
	return t
}

// listSetting is any number of words.
type listSetting struct {
	p     *[]string
	what  string
	check func(string) error // of a word; nil means that all will do
}

func (s listSetting) want() string { return s.what }

func (s listSetting) get() any {
	if *s.p == nil {
		return nil
	}
	return *s.p
}

func (s listSetting) set(words []string, _ place) error {
	for _, word := range words {
		if err := checkText(word); err != nil {
			return fmt.Errorf("%.60q: want a word%w", word, err)
		}
		if s.check != nil {
			if err := s.check(word); err != nil {
				return err
			}
		}
	}
	*s.p = append([]string{}, words...)
	return nil
}

// splitList splits a list in one word at its commas, but not those inside
// parentheses, as in "Read,Bash(git log,git diff)".
func splitList(text string) (words []string) {
	depth, begin := 0, 0
	for i, c := range text + "," {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && (depth <= 0 || i == len(text)):
			if word := strings.TrimSpace(text[begin:i]); word != "" {
				words = append(words, word)
			}
			begin = i + 1
		}
	}
	return words
}

func oneOf(words ...string) func(string) error {
	return func(word string) error {
		if !slices.Contains(words, word) {
			return fmt.Errorf("%.60q: want %s", word, orList(words))
		}
		return nil
	}
}

func checkHost(text string) error {
	_, err := permission.ParseHost(text)
	return err
}

func checkLabel(label string) error { return (&nestor.Task{Label: label}).Check() }

// fileSetting is the name of a file, which becomes absolute.
type fileSetting struct {
	p       *string
	program bool // a name without a slash is looked for on PATH, and kept
}

func (s fileSetting) want() string { return "a file" }
func (s fileSetting) get() any     { return unlessZero(*s.p) }

func (s fileSetting) set(words []string, at place) error {
	name := words[0]
	if err := checkText(name); err != nil {
		return fmt.Errorf("want a file%w", err)
	}
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		if at.home == "" {
			return errors.New("~ stands for HOME, which is not set; write the whole path")
		}
		name = filepath.Join(at.home, rest)
	}
	if s.program && filepath.Base(name) == name {
		*s.p = name
		return nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(at.dir, name)
	}
	*s.p = filepath.Clean(name)
	return nil
}

// addressSetting is a URL, or several with commas between.
type addressSetting struct {
	p       *string
	schemes []string
	several bool
}

func (s addressSetting) want() string {
	w := "a URL, " + s.schemes[0] + "://…"
	if s.several {
		w += ", or several with commas between"
	}
	return w
}

// get leaves the passwords out.
func (s addressSetting) get() any {
	var urls []string
	for part := range strings.SplitSeq(*s.p, ",") {
		if u, err := url.Parse(part); err == nil {
			part = u.Redacted()
		}
		urls = append(urls, part)
	}
	return unlessZero(strings.Join(urls, ","))
}

func (s addressSetting) set(words []string, _ place) error {
	parts := []string{words[0]}
	if s.several {
		parts = strings.Split(words[0], ",")
	}
	for _, part := range parts {
		u, err := url.Parse(strings.TrimSpace(part))
		if err != nil || u.Host == "" || !slices.Contains(s.schemes, u.Scheme) {
			return fmt.Errorf("want %s", s.want())
		}
	}
	*s.p = words[0]
	return nil
}

// hostPortSetting is where to listen.
type hostPortSetting struct{ p *string }

func (s hostPortSetting) want() string { return "HOST:PORT" }
func (s hostPortSetting) get() any     { return unlessZero(*s.p) }

func (s hostPortSetting) set(words []string, _ place) error {
	_, port, err := net.SplitHostPort(words[0])
	if n, notNumber := strconv.Atoi(port); err != nil || notNumber != nil || n < 0 || n > 65535 {
		return errors.New("want HOST:PORT, such as 127.0.0.1:4222")
	}
	*s.p = words[0]
	return nil
}

// unlessZero returns nil for an empty text.
func unlessZero(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// orList returns "a, b or c".
func orList(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
