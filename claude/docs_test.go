package claude_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/claude"
)

// The page for users of other SDKs says where everything went, and names
// nothing that does not exist.
func TestPageForUsersOfOtherSDKs(t *testing.T) {
	data, err := os.ReadFile("../docs/claude-sdk.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	api, wire := readAPI(t)
	names, words := tables(page)
	if len(names) < 200 {
		t.Fatalf("the columns named Go have only %d names", len(names))
	}
	missing := func(what, name string) {
		t.Errorf("docs/claude-sdk.md does not mention the %s %s", what, name)
	}

	options := map[string]bool{}
	for f := range reflect.TypeFor[claude.Options]().Fields() {
		options[f.Name] = true
		if !names[f.Name] {
			missing("option", f.Name)
		}
	}
	for m := range reflect.TypeFor[*claude.Session]().Methods() {
		if !names["Session."+m.Name] {
			missing("method", "Session."+m.Name)
		}
	}
	for m := range reflect.TypeFor[claude.Transcripts]().Methods() {
		if !names["Transcripts."+m.Name] {
			missing("method", "Transcripts."+m.Name)
		}
	}
	for name, embedsHeader := range api {
		if embedsHeader && !names[name] {
			missing("message", name)
		}
	}
	for _, name := range wire {
		if !words[name] {
			missing("word of the protocol", name)
		}
	}
	for name := range names {
		first, rest, dotted := strings.Cut(name, ".")
		_, known := api[name]
		known = known || options[name] || dotted && hasMember(api, first, rest) || name == "TestStore" // of claudetest
		if !known {
			t.Errorf("docs/claude-sdk.md has %s in a column Go, and there is no such thing", name)
		}
	}
}

// hasMember tells whether there is such an option, and its type has that field.
func hasMember(api map[string]bool, option, member string) bool {
	f, ok := reflect.TypeFor[claude.Options]().FieldByName(option)
	if ok {
		_, ok = api[f.Type.Name()+"."+member]
	}
	return ok
}

// The code on the page is that of an example, which compiles.
func TestCodeOnThePageIsCompiled(t *testing.T) {
	page, err := os.ReadFile("../docs/claude-sdk.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("example*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	indent := regexp.MustCompile(`(?m)^\t+`)
	var code strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(indent.ReplaceAll(data, nil))
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) == 0 {
		t.Fatal("there is no code on the page")
	}
	for _, block := range blocks {
		if !strings.Contains(code.String(), indent.ReplaceAllString(block[1], "")) {
			t.Errorf("no example contains\n%s", block[1])
		}
	}
}

var (
	goName    = regexp.MustCompile("`([A-Z][A-Za-z0-9]*(?:\\.[A-Z][A-Za-z0-9]*)?)`")
	wireWords = regexp.MustCompile("`([a-z_/]+)`")
)

// tables returns the Go names in the columns of that title, and the words of
// the protocol in the first columns.
func tables(page string) (names, words map[string]bool) {
	names, words = map[string]bool{}, map[string]bool{}
	column := -1
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "|") {
			column = -1
			continue
		}
		cells := strings.Split(line, "|")
		if column < 0 {
			column = slices.IndexFunc(cells, func(c string) bool { return strings.TrimSpace(c) == "Go" })
			continue
		}
		for _, m := range goName.FindAllStringSubmatch(cells[column], -1) {
			names[m[1]] = true
		}
		for _, m := range wireWords.FindAllStringSubmatch(cells[1], -1) {
			words[m[1]] = true
		}
	}
	return names, words
}

// readAPI returns the exported names of the package, those of members with
// that of their type, each with whether it is a message; and the words of the
// protocol: the types of messages and the requests that are sent.
func readAPI(t *testing.T) (api map[string]bool, wire []string) {
	api = map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			addDecl(api, decl)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				wire = append(wire, requestOf(n)...)
			case *ast.FuncDecl:
				switch n.Name.Name {
				case "newMessage":
					wire = append(wire, casesOf(n, "")...)
				case "newSystem":
					wire = append(wire, casesOf(n, "system/")...)
				}
			}
			return true
		})
	}
	wire = slices.DeleteFunc(wire, func(w string) bool { return w == "system" })
	if len(wire) < 70 {
		t.Fatalf("only %d words of the protocol were found: %q", len(wire), wire)
	}
	return api, wire
}

func addDecl(api map[string]bool, decl ast.Decl) {
	add := func(name *ast.Ident, prefix string) {
		if name.IsExported() {
			api[prefix+name.Name] = false
		}
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add(d.Name, "")
			return
		}
		typ := d.Recv.List[0].Type
		if star, ok := typ.(*ast.StarExpr); ok {
			typ = star.X
		}
		if id, ok := typ.(*ast.Ident); ok {
			add(d.Name, id.Name+".")
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					add(n, "")
				}
			case *ast.TypeSpec:
				add(s.Name, "")
				st, ok := s.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, f := range st.Fields.List {
					if id, ok := f.Type.(*ast.Ident); ok && f.Names == nil && id.Name == "Header" {
						api[s.Name.Name] = true
					}
					for _, n := range f.Names {
						add(n, s.Name.Name+".")
					}
				}
			}
		}
	}
}

// requestOf returns the name of the request that a call sends, if it does.
func requestOf(call *ast.CallExpr) []string {
	fun := call.Fun
	if index, ok := fun.(*ast.IndexExpr); ok {
		fun = index.X
	}
	var name string
	switch f := fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	if !slices.Contains([]string{"ask", "call", "Control"}, name) {
		return nil
	}
	for _, arg := range call.Args[:min(3, len(call.Args))] {
		if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			return literals(lit, "")
		}
	}
	return nil
}

func casesOf(f *ast.FuncDecl, prefix string) (names []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if c, ok := n.(*ast.CaseClause); ok {
			for _, e := range c.List {
				names = append(names, literals(e, prefix)...)
			}
		}
		return true
	})
	return names
}

func literals(e ast.Expr, prefix string) []string {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return nil
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return nil
	}
	return []string{prefix + text}
}
