package claude

import (
	"testing"
)

func TestSchemaOfStruct(t *testing.T) {
	type part struct {
		Line int `json:"line"`
	}
	type report struct {
		Title  string         `json:"title" jsonschema:"a few words"`
		Score  float64        `json:"score"`
		OK     bool           `json:"ok"`
		Tags   []string       `json:"tags"`
		Counts map[string]int `json:"counts"`
		Parts  []part         `json:"parts"`
		Best   *part          `json:"best,omitempty"`
		Note   string         `json:"note,omitempty"`
	}
	t.Run("item 308: an object", func(t *testing.T) {
		for _, schema := range []func() (*resultSchema, error){schemaFor[report], schemaFor[*report]} {
			s, err := schema()
			if err != nil {
				t.Fatal(err)
			}
			part := `"properties":{"line":{"type":"integer"}},"required":["line"],"additionalProperties":false`
			wantJSON(t, s.JSON, `{"type":"object","properties":{
				"title":{"type":"string","description":"a few words"},"score":{"type":"number"},"ok":{"type":"boolean"},
				"tags":{"type":"array","items":{"type":"string"}},
				"counts":{"type":"object","additionalProperties":{"type":"integer"}},
				"parts":{"type":"array","items":{"type":"object",`+part+`}},
				"best":{"type":["null","object"],`+part+`},
				"note":{"type":"string"}},
				"required":["title","score","ok","tags","counts","parts"],"additionalProperties":false}`)
			var r report
			if err := s.decode([]byte(`{"title":"t","tags":[]}`), &r); err != nil || r.Title != "t" {
				t.Errorf("got %+v, %v", r, err)
			}
		}
	})
}

func TestSchemaOfOthers(t *testing.T) {
	t.Run("item 308: what is no object is wrapped", func(t *testing.T) {
		s, err := schemaFor[[]int]()
		if err != nil {
			t.Fatal(err)
		}
		wantJSON(t, s.JSON, `{"type":"object","properties":{"value":{"type":"array","items":{"type":"integer"}}},"required":["value"],"additionalProperties":false}`)
		var v []int
		if err := s.decode([]byte(`{"value":[1,2]}`), &v); err != nil || len(v) != 2 {
			t.Errorf("got %v, %v", v, err)
		}
		for _, bad := range []string{`[1]`, `{}`, `{"value":"x"}`} {
			if err := s.decode([]byte(bad), &v); err == nil {
				t.Errorf("%s passed", bad)
			}
		}
	})
	t.Run("anything is wrapped too", func(t *testing.T) {
		s, err := schemaFor[any]()
		if err != nil || !s.wrapped {
			t.Fatalf("got %v, %v", s, err)
		}
	})
	t.Run("a map is an object", func(t *testing.T) {
		s, err := schemaFor[map[string]bool]()
		if err != nil || s.wrapped {
			t.Fatalf("got %v, %v", s, err)
		}
	})
	t.Run("what JSON cannot say is an error", func(t *testing.T) {
		type loop struct{ Next *loop }
		if _, err := schemaFor[loop](); err == nil {
			t.Error("a type that contains itself passed")
		}
		_, err := schemaFor[struct{ F func() }]()
		wantSaid(t, err, "schema of")
	})
}
