package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const configDoc = "../../docs/config.md"

// keyTable is the table of keys in docs/config.md.
func keyTable() string {
	var b strings.Builder
	b.WriteString("| key | value | default | what it is |\n|---|---|---|---|\n")
	for _, k := range configKeys() {
		s := k.in(defaultConfig())
		standard := ""
		if v := s.get(); v != nil {
			standard = "`" + valueText(v) + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.name, s.want(), standard, k.doc)
	}
	return b.String()
}

func TestConfigDocIsFresh(t *testing.T) {
	const begin, end = "<!-- keys -->\n", "<!-- /keys -->\n"
	text, err := os.ReadFile(configDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	old, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no table between %q and %q", configDoc, begin, end)
	}
	fresh := keyTable()
	if *update && old != fresh {
		if err := os.WriteFile(configDoc, []byte(before+begin+fresh+end+after), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != fresh {
		t.Errorf("the table of keys in %s is stale; run this test with -update. It would be\n%s", configDoc, fresh)
	}
}

// The example in docs/config.md can be copied.
func TestConfigDocExample(t *testing.T) {
	text, err := os.ReadFile(configDoc)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	example, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatalf("%s has no example", configDoc)
	}
	dir, env := configured(t, example, "")
	c, err := loadConfig(dir, env, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.origins) < 5 {
		t.Errorf("it sets %v alone", c.origins)
	}
}
