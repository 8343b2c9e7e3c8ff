package claude

import (
	"bytes"
	"encoding/json"
	"slices"
)

// jsonObject is a JSON object whose members keep their order and their bytes.
// Of members with the same name the last counts, as in JavaScript.
type jsonObject struct {
	names  []string
	values map[string]json.RawMessage
}

// parseObject reports false for what is not one JSON object.
func parseObject(data []byte) (*jsonObject, bool) {
	if !json.Valid(data) {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	o := new(jsonObject)
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, false
		}
		o.set(name.(string), value)
	}
	return o, true
}

func (o *jsonObject) get(name string) json.RawMessage { return o.values[name] }

func (o *jsonObject) set(name string, value json.RawMessage) {
	if o.values == nil {
		o.values = make(map[string]json.RawMessage)
	}
	if _, ok := o.values[name]; !ok {
		o.names = append(o.names, name)
	}
	o.values[name] = value
}

func (o *jsonObject) setString(name, value string) { o.set(name, jsonString(value)) }

// remove tells whether the member was there.
func (o *jsonObject) remove(name string) bool {
	if _, ok := o.values[name]; !ok {
		return false
	}
	delete(o.values, name)
	o.names = slices.DeleteFunc(o.names, func(n string) bool { return n == name })
	return true
}

// first moves a member to the front, if it is there.
func (o *jsonObject) first(name string) {
	if i := slices.Index(o.names, name); i > 0 {
		o.names = slices.Insert(slices.Delete(o.names, i, i+1), 0, name)
	}
}

// bytes returns the object on one line.
func (o *jsonObject) bytes() []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range o.names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(jsonString(name))
		b.WriteByte(':')
		// Values come from the decoder, so they are valid.
		_ = json.Compact(&b, o.values[name])
	}
	b.WriteByte('}')
	return b.Bytes()
}

// jsonString encodes s without the escapes that only HTML needs.
func jsonString(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return bytes.TrimRight(b.Bytes(), "\n")
}
