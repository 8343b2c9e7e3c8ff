package history

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/internal/eventlog"
)

// All that knows SQLite's full-text search. Texts are indexed by the position of
// their event and not stored again.
const (
	createTexts  = `CREATE VIRTUAL TABLE texts USING fts5 (body, content = '', tokenize = 'unicode61 remove_diacritics 2')`
	insertText   = `INSERT INTO texts (rowid, body) VALUES (?, ?)`
	runsWithText = `runs.id IN (SELECT e.run FROM texts JOIN events e ON e.position = texts.rowid WHERE texts MATCH ?)`
	searchTexts  = `SELECT e.position, e.run, e.data FROM texts JOIN events e ON e.position = texts.rowid JOIN runs ON runs.id = e.run `
)

// Hit is a text that was found.
type Hit struct {
	Run      nestor.ID
	Position eventlog.Position // of its event
	Snippet  string            // a part of the text, around what was found
}

// Search finds texts in which all the words occur: prompts, what agents and
// tools said, errors, letters. Words are compared without case and accents; one
// that ends in * stands for all that begin with it; "in quotes" they must follow
// each other. No other sign has a meaning, and a text without words finds
// nothing.
//
// The newest come first. The next ones are found with q.After set to the
// Position of the last. q.Text is not used.
func (h *History) Search(ctx context.Context, text string, q Query) ([]Hit, error) {
	match, ok := matchExpression(text)
	if !ok {
		return nil, nil
	}
	c := q.where()
	c.add("texts MATCH ?", match)
	if q.After > 0 {
		c.add("texts.rowid < ?", int64(q.After))
	}
	hits, err := h.search(ctx, c, q.limit(), words(text))
	if err != nil {
		return nil, fmt.Errorf("searching %w", h.explain(err))
	}
	return hits, nil
}

func (h *History) search(ctx context.Context, c *conditions, limit int, wanted []word) (hits []Hit, err error) {
	rows, err := h.read.QueryContext(ctx, searchTexts+c.String()+" ORDER BY texts.rowid DESC LIMIT ?", append(c.args, limit)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var hit Hit
		var data []byte
		if err := rows.Scan(&hit.Position, &hit.Run, &data); err != nil {
			return nil, err
		}
		if event, err := nestor.DecodeEvent(data); err == nil {
			hit.Snippet = snippet(textOf(event), wanted)
		}
		hits = append(hits, hit)
	}
	return hits, rows.Err()
}

// word is a word of a search, or several in quotes.
type word struct {
	text   string // without quotes and star
	prefix bool
}

// What a search may have at most; the rest is not looked for.
const (
	maxWords    = 32
	maxWordSize = 200
)

// words cuts a search apart. What has no letter or digit is left out.
func words(text string) (list []word) {
	for text = clean(text); text != "" && len(list) < maxWords; {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
		var part string
		if rest, quoted := strings.CutPrefix(text, `"`); quoted {
			part, text, _ = strings.Cut(rest, `"`)
		} else if end := strings.IndexFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r == '"' }); end >= 0 {
			part, text = text[:end], text[end:]
		} else {
			part, text = text, ""
		}
		w := word{text: part}
		w.text, w.prefix = strings.CutSuffix(part, "*")
		if len(w.text) > maxWordSize {
			w.text = strings.TrimSuffix(cut(w.text, maxWordSize), "…")
		}
		if strings.ContainsFunc(w.text, isWordRune) {
			list = append(list, w)
		}
	}
	return list
}

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

// matchExpression writes a search in SQLite's language, every word as a string
// in it; false if there are no words.
func matchExpression(text string) (string, bool) {
	var b strings.Builder
	for _, w := range words(text) {
		if b.Len() > 0 {
			b.WriteString(" AND ")
		}
		b.WriteString(`"` + strings.ReplaceAll(w.text, `"`, `""`) + `"`)
		if w.prefix {
			b.WriteString("*")
		}
	}
	return b.String(), b.Len() > 0
}

// snippetSize is how many bytes of a text a snippet has, about.
const snippetSize = 200

// snippet returns the part of text where the first of the words is found; the
// beginning if none is, since accents were ignored.
func snippet(text string, wanted []word) string {
	at := -1
	for _, w := range wanted {
		if i := indexFold(text, w.text); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	start := max(0, at-snippetSize/3)
	for start > 0 && !utf8.RuneStart(text[start]) {
		start--
	}
	part := cut(text[start:], snippetSize)
	if start > 0 {
		part = "…" + part
	}
	return strings.Join(strings.Fields(part), " ")
}

// indexFold is strings.Index without case, for places where upper and lower case
// are as long as each other; -1 elsewhere.
func indexFold(text, part string) int {
	lower := strings.ToLower(text)
	if len(lower) != len(text) {
		return strings.Index(text, part)
	}
	return strings.Index(lower, strings.ToLower(part))
}
