package claude_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// behaviours is how many behaviours docs/conformance.md lists.
const behaviours = 420

// Every behaviour of docs/conformance.md has a test that exists and says that it
// shows it, or the reason why there is none.
func TestConformance(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := itemsOfTests(t)
	rows := map[int]int{}
	for i, line := range strings.Split(string(doc), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 2 || !strings.HasPrefix(line, "| ") || strings.TrimSpace(cells[1]) == "number" {
			continue
		}
		if len(cells) != 6 {
			t.Errorf("line %d has %d cells, want 4: %s", i+1, len(cells)-2, line)
			continue
		}
		numbers := itemList(strings.TrimSpace(cells[1]))
		if len(numbers) == 0 || strings.TrimSpace(cells[2]) == "" {
			t.Errorf("line %d has no number or no behaviour: %s", i+1, line)
		}
		tests := strings.TrimSpace(cells[3])
		if tests == "–" && strings.TrimSpace(cells[4]) == "" {
			t.Errorf("line %d has neither a test nor a reason: %s", i+1, line)
		}
		for _, n := range numbers {
			rows[n]++
			if tests == "–" {
				continue
			}
			for name := range strings.SplitSeq(tests, ", ") {
				items, ok := shown[strings.Trim(name, "`")]
				if !ok {
					t.Errorf("line %d: there is no test %s", i+1, name)
				} else if !items[n] {
					t.Errorf("line %d: %s does not say that it shows item %d", i+1, name, n)
				}
			}
		}
	}
	for n := range behaviours {
		if rows[n+1] != 1 {
			t.Errorf("number %d stands there %d times", n+1, rows[n+1])
		}
		delete(rows, n+1)
	}
	for n := range rows {
		t.Errorf("there is no number %d", n)
	}
	for name, items := range shown {
		for n := range items {
			if n < 1 || n > behaviours {
				t.Errorf("%s shows item %d, which does not exist", name, n)
			}
		}
	}
}

// itemsOfTests are the items that each test of this package and of claudetest
// names, by the test's name.
func itemsOfTests(t *testing.T) map[string]map[int]bool {
	t.Helper()
	all := map[string]map[int]bool{}
	for _, pattern := range []string{"*_test.go", "claudetest/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no files %s: %v", pattern, err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			set := token.NewFileSet()
			parsed, err := parser.ParseFile(set, file, source, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range parsed.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
					continue
				}
				from := f.Pos()
				if f.Doc != nil {
					from = f.Doc.Pos()
				}
				all[f.Name.Name] = itemsIn(string(source[set.Position(from).Offset:set.Position(f.End()).Offset]))
			}
		}
	}
	return all
}

// items matches "item 21", "items 1, 2 and 5-7", "Items 342 to 355".
var items = regexp.MustCompile(`[Ii]tems? (\d+(?:(?:, and | and |, | to |[-–])\d+)*)`)

// itemsIn are the items that the text names.
func itemsIn(text string) map[int]bool {
	found := map[int]bool{}
	for _, m := range items.FindAllStringSubmatch(text, -1) {
		for _, n := range itemList(m[1]) {
			found[n] = true
		}
	}
	return found
}

// itemList reads a list of numbers and ranges. It is empty for anything else.
func itemList(text string) (list []int) {
	text = strings.NewReplacer(", and ", ",", " and ", ",", ", ", ",", " to ", "-", "–", "-").Replace(text)
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if errA != nil || errB != nil || b < a {
			return nil
		}
		for n := a; n <= b; n++ {
			list = append(list, n)
		}
	}
	return list
}
