package plan

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/dfaf701a/nestor"
)

// Path are the runs above one, the root first. A chain of a thousand runs writes a
// thousand of them with every change, so in JSON it is one string, the base64 of
// their bytes. What an older version wrote, a list of ids, is read too.
type Path []nestor.ID

// Lineage is what the runs of a path were asked to do: the fingerprint of each, in
// the same order. In JSON it is as a path is.
type Lineage []string

const (
	idSize   = 16
	markSize = 6 // of a fingerprint
)

func (p Path) MarshalJSON() ([]byte, error) {
	all := make([]byte, 0, len(p)*idSize)
	for _, id := range p {
		b, err := id.Bytes()
		if err != nil {
			return nil, fmt.Errorf("path: %w", err)
		}
		all = append(all, b[:]...)
	}
	return quoted(all), nil
}

func (p *Path) UnmarshalJSON(data []byte) error {
	all, err := unquoted((*[]nestor.ID)(p), data, idSize)
	if err != nil || all == nil {
		return err
	}
	*p = make(Path, 0, len(all)/idSize)
	for ; len(all) > 0; all = all[idSize:] {
		*p = append(*p, nestor.IDFrom([idSize]byte(all)))
	}
	return nil
}

func (l Lineage) MarshalJSON() ([]byte, error) {
	all := make([]byte, 0, len(l)*markSize)
	for _, mark := range l {
		var err error
		if all, err = hex.AppendDecode(all, []byte(mark)); err != nil || len(mark) != 2*markSize {
			return nil, fmt.Errorf("lineage: %.60q is no fingerprint", mark)
		}
	}
	return quoted(all), nil
}

func (l *Lineage) UnmarshalJSON(data []byte) error {
	all, err := unquoted((*[]string)(l), data, markSize)
	if err != nil || all == nil {
		return err
	}
	*l = make(Lineage, 0, len(all)/markSize)
	for ; len(all) > 0; all = all[markSize:] {
		*l = append(*l, hex.EncodeToString(all[:markSize]))
	}
	return nil
}

func quoted(all []byte) []byte {
	text := append(make([]byte, 0, 2+base64.StdEncoding.EncodedLen(len(all))), '"')
	return append(base64.StdEncoding.AppendEncode(text, all), '"')
}

// unquoted returns the bytes of some things of a size. If data is a list it is read
// into that, and the bytes are nil.
func unquoted(list any, data []byte, size int) ([]byte, error) {
	if data[0] != '"' {
		return nil, json.Unmarshal(data, list)
	}
	all := []byte{}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	if len(all)%size != 0 {
		return nil, fmt.Errorf("%d bytes are not a multiple of %d", len(all), size)
	}
	return all, nil
}
