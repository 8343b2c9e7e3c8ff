package yamltree_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor/internal/yamltree"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = 64 << 10

// shape is what the tests read a document into.
type shape struct {
	Word  string
	Yes   bool
	Count int
	Cost  float64
	Took  time.Duration
	Words []string
	Thing any
}

func read(text string) (s shape, err error) {
	root, err := yamltree.Parse("f.yaml", []byte(text), limit)
	if err != nil {
		return s, err
	}
	return s, root.Each(map[string]func(*yamltree.Node) error{
		"word":  yamltree.Into(&s.Word, (*yamltree.Node).Text),
		"yes":   yamltree.Into(&s.Yes, (*yamltree.Node).Bool),
		"count": yamltree.Into(&s.Count, (*yamltree.Node).Count),
		"cost":  yamltree.Into(&s.Cost, (*yamltree.Node).Amount),
		"took":  yamltree.Into(&s.Took, (*yamltree.Node).Duration),
		"words": yamltree.Into(&s.Words, yamltree.All((*yamltree.Node).Text)),
		"thing": yamltree.Into(&s.Thing, (*yamltree.Node).Any),
	})
}

func TestValuesAreRead(t *testing.T) {
	got, err := read(`
word: 1.10
yes: true
count: 3
cost: 0.5
took: 90s
words: [a, "b c"]
thing: {a: [1, 2.5, true, ~, 2026-11-15], "b": {c: "1"}}
`)
	want := shape{"1.10", true, 3, 0.5, 90 * time.Second, []string{"a", "b c"},
		map[string]any{"a": []any{1, 2.5, true, nil, "2026-11-15"}, "b": map[string]any{"c": "1"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, %v", got, err)
	}
	for _, empty := range []string{"", "# nothing\n", "---\n", "~"} {
		if got, err := read(empty); err != nil || !reflect.DeepEqual(got, shape{}) {
			t.Errorf("%q is %+v, %v", empty, got, err)
		}
	}
}

func TestErrorsSayWhere(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"wrod: x\n", `f.yaml:1:1: no key "wrod" here; there are: cost, count, `},
		{"word:\n", `f.yaml:1:6: want a value, got nothing`},
		{"word: [a]\n", `f.yaml:1:7: want a value, got a list`},
		{"yes: maybe\n", `f.yaml:1:6: want true or false, got "maybe"`},
		{"count: -1\n", `f.yaml:1:8: want a whole number, zero or more, got "-1"`},
		{"count: 99999999999\n", `f.yaml:1:8: want a whole number`},
		{"cost: .nan\n", `f.yaml:1:7: want a number, zero or more, got ".nan"`},
		{"cost: nan\n", `f.yaml:1:7: want a number, zero or more, got "nan"`},
		{"took: 10\n", `f.yaml:1:7: want a duration, such as 20ms, 90s or 1h, got "10"`},
		{"took: {}\n", `f.yaml:1:7: want a duration, such as 20ms, 90s or 1h, got a mapping`},
		{"words: a\n", `f.yaml:1:8: want a list, such as [a, b], got "a"`},
		{"thing: [.inf]\n", `f.yaml:1:9: want a finite number, got ".inf"`},
		{"thing: {a: 1, a: 2}\n", `f.yaml:1:15: the key "a" stands here twice; it is in line 1 too`},
		{"word: a\nword: b\n", `f.yaml:2:1: the key "word" stands here twice; it is in line 1 too`},
		{"- a\n", `f.yaml:1:1: want a mapping of keys to values, got a list`},
		{"word: &a x\nthing: *a\n", `f.yaml:2:8: aliases are not allowed here; write the value again`},
		{"thing: &a [*a]\n", `f.yaml:1:12: aliases are not allowed here`},
		{"thing: !!binary aGk=\n", `f.yaml:1:8: tags are not allowed here; remove !!binary`},
		{"thing: {[a]: 1}\n", `f.yaml:1:9: a key must be a word`},
		{"word: a\n---\nword: b\n", `f.yaml: there is more than one document`},
		{"word: [\n", `f.yaml:`},
		{"word: \x00\n", `f.yaml: `},
		{"thing: " + strings.Repeat("[", 100) + strings.Repeat("]", 100), `f.yaml:1:71: this is more than 64 levels deep`},
		{strings.Repeat("[", 40<<10), `f.yaml`},
		{"#" + strings.Repeat("x", limit), `f.yaml: it has 65537 bytes or more; at most 65536 are read`},
	} {
		_, err := read(test.text)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%.60q: got %v, want %s", test.text, err, test.want)
		}
		if _, ok := errors.AsType[*yamltree.Error](err); !ok {
			t.Errorf("%.60q: %v has no place", test.text, err)
		}
	}
}

func TestAllErrorsAreTold(t *testing.T) {
	_, err := read("took: soon\ncount: many\nwords: [[], {}]\nelse: 1\n")
	if err == nil || strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("got %v", err)
	}
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, "k%d: 1\n", i)
	}
	_, err = read(many.String())
	if err == nil || strings.Count(err.Error(), "\n") != 20 || !strings.HasSuffix(err.Error(), "\nand 80 more") {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("word: x\nthing: {a: [1, ~, 2.5, {b: c}]}\n")
	f.Add("a: &x [*x]\n<<: *x\n")
	f.Add("? [a]\n: b\n---\n- !!int c")
	f.Add("\ufeffword: |\n  a\n  b\n")
	f.Fuzz(func(t *testing.T, text string) {
		root, err := yamltree.Parse("f.yaml", []byte(text), limit)
		if (root == nil) == (err == nil) {
			t.Fatalf("%v and %v", root, err)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.yaml:") {
				t.Fatalf("%v has no place", err)
			}
			return
		}
		v, err := root.Any()
		if err != nil {
			return
		}
		if _, err := json.Marshal(v); err != nil {
			t.Fatalf("%#v is no JSON: %v", v, err)
		}
	})
}
