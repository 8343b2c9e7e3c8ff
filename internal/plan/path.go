package plan

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dfaf701a/nestor"
)

// Path are the runs above one, the root first: the base64 of the id of each, one
// behind the other. Every run of a chain of a thousand is written and read with
// hundreds of them, so they are one string. Empty means that there are none.
//
// In JSON it is that string. A list of ids, as it was before layout 4, is read too.
type Path string

// Lineage is what the runs of a path were asked to do: the fingerprint of each, in
// the same order, one behind the other. In JSON it is as a path is.
type Lineage string

// The sizes of one, in bytes of text.
const (
	idText   = 22
	markText = 2 * markSize
	markSize = 6 // of a fingerprint, before it is text
)

// PathOf returns the path of runs. It fails for what is no id.
func PathOf(ids ...nestor.ID) (p Path, err error) {
	for _, id := range ids {
		if p, err = p.with(id); err != nil {
			return "", err
		}
	}
	return p, nil
}

// with returns the path of the runs below id, whose path this is.
func (p Path) with(id nestor.ID) (Path, error) {
	text, err := textOf(id)
	return p + Path(text), err
}

func textOf(id nestor.ID) (string, error) {
	b, err := id.Bytes()
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(b[:]), nil
}

// Len returns how many there are.
func (p Path) Len() int { return len(p) / idText }

// At returns one of them, by its depth.
func (p Path) At(depth int) nestor.ID {
	var b [16]byte
	base64.RawURLEncoding.Decode(b[:], []byte(p[depth*idText:][:idText])) // it was checked when it was read
	return nestor.IDFrom(b)
}

// IDs returns all of them.
func (p Path) IDs() (ids []nestor.ID) {
	for i := range p.Len() {
		ids = append(ids, p.At(i))
	}
	return ids
}

// Contains tells whether id is one of them.
func (p Path) Contains(id nestor.ID) bool {
	text, err := textOf(id)
	return err == nil && indexOf(string(p), text) >= 0
}

func (p *Path) UnmarshalJSON(data []byte) error {
	text, err := joined(data, idText, base64Digits, func(item string) (string, error) { return textOf(nestor.ID(item)) })
	*p = Path(text)
	return err
}

// with returns the lineage of what a run with a fingerprint starts, whose lineage
// this is.
func (l Lineage) with(mark string) Lineage { return l + Lineage(mark) }

// depth returns where in the path the first run with a fingerprint is; negative if
// there is none.
func (l Lineage) depth(mark string) int { return indexOf(string(l), mark) }

func (l *Lineage) UnmarshalJSON(data []byte) error {
	text, err := joined(data, markText, hexDigits, func(item string) (string, error) {
		if len(item) != markText {
			return "", fmt.Errorf("%.60q is no fingerprint", item)
		}
		return item, nil
	})
	*l = Lineage(text)
	return err
}

// indexOf returns which of the items of their size is item; negative if none is.
func indexOf(items, item string) int {
	for i := 0; len(items) >= len(item); i++ {
		if items[:len(item)] == item {
			return i
		}
		items = items[len(item):]
	}
	return -1
}

const (
	hexDigits    = "0123456789abcdef"
	base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
)

// joined reads a text of items of a size and of some digits, or a list of what each
// makes an item of.
func joined(data []byte, size int, digits string, each func(string) (string, error)) (text string, err error) {
	var list []string
	if data[0] == '[' {
		err = json.Unmarshal(data, &list)
	} else {
		err = json.Unmarshal(data, &text)
	}
	if err != nil {
		return "", err
	}
	for _, item := range list {
		if item, err = each(item); err != nil {
			return "", err
		}
		text += item
	}
	if len(text)%size != 0 || strings.Trim(text, digits) != "" {
		return "", fmt.Errorf("%.60q: want items of %d characters of %s", text, size, digits)
	}
	return text, nil
}
