package nestor_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor"
)

func TestSchemaOfATask(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"a":{"type":["string","null"]},"type":{"enum":["x"]}},"required":["a"],"additionalProperties":false}`: "",
		`{"items":[{},true],"anyOf":[{"$ref":"#/$defs/b"}],"$defs":{"b":{"minimum":1}},"default":{"type":7},"x-own":1}`:                       "",
		`true`:                               "",
		`{`:                                  "schema: not JSON",
		`[]`:                                 "schema: want an object",
		`{"type":"strin"}`:                   `schema: "/type": want one of array, boolean`,
		`{"type":7}`:                         `schema: "/type": want one of`,
		`{"properties":{"a":5}}`:             `schema: "/properties/a": want an object`,
		`{"properties":[]}`:                  `schema: "/properties": want an object with a schema for each name`,
		`{"required":"a"}`:                   `schema: "/required": want a list of names`,
		`{"required":[1]}`:                   `schema: "/required": want a list of names`,
		`{"enum":"a"}`:                       `schema: "/enum": want a list of values`,
		`{"anyOf":{}}`:                       `schema: "/anyOf": want a list of schemas`,
		`{"anyOf":[{},{"not":{"items":3}}]}`: `schema: "/anyOf/1/not/items": want an object`,
		`{"$defs":{"a":{"type":"int"}},"type":1}`: `schema: "/$defs/a/type": want one of`,
	} {
		err := (&nestor.Task{Schema: json.RawMessage(schema)}).Check()
		if err == nil && want != "" || err != nil && (want == "" || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", schema, err, want)
		}
	}
}
