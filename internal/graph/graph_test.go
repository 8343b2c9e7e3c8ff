package graph

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t testing.TB, source string) nestor.Graph {
	t.Helper()
	g, err := Parse("graph.yaml", []byte(source), nil)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

const reviews = `
name: reviews
inputs: {area: the parser, quick: false}
tasks:
  plan:
    agent: planner
    input: List the files of ${inputs.area}.
    schema: {type: object, properties: {files: {type: array, items: {type: object, properties: {name: {type: string}}}}}, required: [files]}
    limits: {max_turns: 3, timeout: 2m, max_budget_usd: 0.5}
    tools: [Read, Grep]
  review:
    foreach: ${plan.output.files}
    parallel: 2
    input: Review ${item.name} ($${index} is ${index}).
    on_error: continue
    retry: 1
  sum:
    when: ${plan.output.files} && !${inputs.quick}
    after: [plan]
    input: "Sum up: ${review.output}"
`

func TestAGraphIsReadWithAllThatItSays(t *testing.T) {
	g := parse(t, reviews)
	order, err := g.Order()
	if err != nil || !slices.Equal(order, []string{"plan", "review", "sum"}) {
		t.Errorf("order %v, %v", order, err)
	}
	if after := g.Tasks["sum"].After; !slices.Equal(after, []string{"plan", "review"}) {
		t.Errorf("sum comes after %v; what it refers to and what it names are both meant", after)
	}
	plan := g.Tasks["plan"].Task
	if plan.Limits.Turns != 3 || plan.Limits.BudgetUSD != 0.5 || string(plan.Data) != `{"tools":["Read","Grep"]}` || plan.Schema == nil {
		t.Errorf("plan is %+v", plan)
	}
	if problems := Check(g, nil); len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
}

func TestWhatIsWrongWithAFileIsToldWithItsPlace(t *testing.T) {
	for name, test := range map[string]struct{ source, want string }{
		"cycle":           {"tasks: {a: {input: 'x ${b.output}'}, b: {input: 'y ${a.output}'}}", `tasks that wait for each other: ["a" "b" "a"]`},
		"itself":          {"tasks: {a: {input: 'x ${a.output}'}}", `["a" "a"]`},
		"unknown task":    {"tasks:\n  a: {input: 'x ${c.output}'}", `task "a": ${c.output}: there is no task "c"; there are: a`},
		"unknown after":   {"tasks:\n  a: {input: x, after: [c]}", `task "a" comes after "c", which is not in the graph`},
		"unknown key":     {"tasks:\n  a: {input: x, inputs: y}", `graph.yaml:2:17: no key "inputs" here`},
		"no input":        {"tasks:\n  a: {agent: x}", `graph.yaml:2:6: the task has no input`},
		"no tasks":        {"name: x", "there are no tasks"},
		"name":            {"tasks:\n  a b: {input: x}", `graph.yaml:2:3: task "a b": a name has letters`},
		"reserved":        {"tasks:\n  item: {input: x}", "is none of inputs, item, index"},
		"open reference":  {"tasks:\n  a: {input: 'x ${b.output'}", `graph.yaml:2:14: "${b.output" is not closed`},
		"bad reference":   {"tasks:\n  a: {input: 'x ${b output}'}", "is no reference"},
		"on_error":        {"tasks:\n  a: {input: x, on_error: die}", `on_error "die": want fail, skip or continue`},
		"foreach":         {"tasks:\n  a: {input: x, foreach: 'all ${b.output}'}\n  b: {input: y}", "want one reference to a list"},
		"when":            {"tasks:\n  a: {input: x, when: '${b.output} = 1'}\n  b: {input: y}", "follows the condition"},
		"missing schema":  {"tasks:\n  a: {input: x, schema: no.json}", "graph.yaml:2:25: schema"},
		"limit":           {"tasks:\n  a: {input: x, limits: {max_turns: -1}}", "want a whole number"},
		"not a graph":     {"[1, 2]", "want a mapping"},
		"retry of a word": {"tasks:\n  a: {input: x, retry: often}", "want a whole number"},
	} {
		_, err := Parse("graph.yaml", []byte(test.source), func(string) ([]byte, error) { return nil, fs.ErrNotExist })
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

func TestCheckFindsWhatCannotWork(t *testing.T) {
	const list = "schema: {type: object, properties: {files: {type: array, items: {type: string}}, n: {type: integer}}}"
	for name, test := range map[string]struct{ tasks, want string }{
		"unknown field":     {"a: {input: x, " + list + "}, b: {input: '${a.output.fils}'}", `task "b": ${a.output.fils}: its schema has no field "fils"; there are: files, n`},
		"field of an item":  {"a: {input: x, " + list + "}, b: {input: '${a.output.files[0].name}'}", `field "name" of what its schema says is of type string`},
		"item of a number":  {"a: {input: x, " + list + "}, b: {input: '${a.output.n[0]}'}", `item 0 of what its schema says is of type integer`},
		"field of a text":   {"a: {input: x}, b: {input: '${a.output.files}'}", `the output of task "a" is a text`},
		"each of a number":  {"a: {input: x, " + list + "}, b: {input: y, foreach: '${a.output.n}'}", `foreach ${a.output.n}: its schema says that it is of type integer, not a list`},
		"each of a text":    {"a: {input: x}, b: {input: y, foreach: '${a.output}'}", "of type string, not a list"},
		"field of a list":   {"a: {input: x, " + list + "}, b: {input: y, foreach: '${a.output.files}'}, c: {input: '${b.output.x}'}", "name an item"},
		"unknown input":     {"a: {input: '${inputs.area}'}", "the graph has these inputs: none"},
		"item without each": {"a: {input: '${item}'}", "only a task with foreach has an item"},
		"not an output":     {"a: {input: x}, b: {input: '${a.result}'}", "of a task there are output, status and error"},
		"parallel alone":    {"a: {input: x, parallel: 2}", "are for tasks with foreach"},
		"unknown agent":     {"a: {input: x, agent: nobody}", `there is no agent "nobody"`},
		"bad schema":        {"a: {input: x, schema: {type: 3}}", `task "a": schema:`},
		"unused output":     {"a: {input: x, " + list + "}, b: {input: y, after: [a]}", `task "a": warning: its output has a schema, and no task uses it`},
	} {
		g := parse(t, "tasks: {"+test.tasks+"}")
		problems := Check(g, func(agent string) error { return errors.New(`there is no agent "` + agent + `"`) })
		if !slices.ContainsFunc(problems, func(p Problem) bool { return strings.Contains(p.String(), test.want) }) {
			t.Errorf("%s: %v, want %s", name, problems, test.want)
		}
	}
}

func TestASchemaMayBeAFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "s.json"), []byte(`{"type":"object"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := Parse("graph.yaml", []byte("tasks: {a: {input: x, schema: s.json}}"), func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, name)) })
	if err != nil || string(g.Tasks["a"].Task.Schema) != `{"type":"object"}` {
		t.Errorf("%v, %s", err, g.Tasks["a"].Task.Schema)
	}
}

func TestTextsAreRendered(t *testing.T) {
	s := scope{"a": map[string]any{"output": map[string]any{"list": []any{"x", 2.0}, "text": "words"}}, "none": map[string]any{"output": nil}}
	for source, want := range map[string]string{
		"plain":                                  "plain",
		"${a.output.text}!":                      "words!",
		"${a.output.list}":                       `["x",2]`,
		"${a.output.list[0]}${a.output.list[1]}": "x2",
		"$${a.output}":                           "${a.output}",
		"${none.output.deeper[3]}":               "null",
		"costs $5, {x}":                          "costs $5, {x}",
		"":                                       "",
	} {
		text, err := parseText(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := text.render(s); err != nil || got != want {
			t.Errorf("%s becomes %q, %v; want %q", source, got, err, want)
		}
	}
	for _, source := range []string{"${a.output.no}", "${a.output.list[2]}", "${a.output.list.x}", "${a.output.text.x}", "${a.output[0]}", "${b.output}"} {
		text, err := parseText(source)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := text.render(s); err == nil {
			t.Errorf("%s becomes %q; there is no such value", source, got)
		}
	}
}

func TestConditions(t *testing.T) {
	s := scope{"a": map[string]any{"output": map[string]any{"n": 3.0, "s": "high", "empty": []any{}, "list": []any{1.0}, "no": false}}}
	for source, want := range map[string]bool{
		`${a.output.n}`:                               true,
		`!${a.output.n}`:                              false,
		`${a.output.empty}`:                           false,
		`${a.output.list}`:                            true,
		`${a.output.no} || ${a.output.n} > 2`:         true,
		`${a.output.n} >= 3 && ${a.output.n} < 4`:     true,
		`${a.output.s} == "high"`:                     true,
		`${a.output.s} != "high"`:                     false,
		`${a.output.s} < "low"`:                       true,
		`(${a.output.no}) || (!(${a.output.n} == 4))`: true,
		`${a.output.list} == [1]`:                     true,
		`true && !false`:                              true,
		`${a.output.no} && ${a.output.missing}`:       false,
		`null == null`:                                true,
		`${a.output.n}==3&&(1<2)`:                     true,
	} {
		c, err := parseCondition(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		value, err := c.holds(s)
		if err != nil || truth(value) != want {
			t.Errorf("%s is %v, %v; want %v", source, value, err, want)
		}
	}
	for _, source := range []string{"", "&&", "${a", "(1", "1 2", "'x'", "1 ==", "! ", strings.Repeat("(", 100) + "1"} {
		if _, err := parseCondition(source); err == nil {
			t.Errorf("%q is taken for a condition", source)
		}
	}
	c, err := parseCondition(`${a.output.s} > 1`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.holds(s); err == nil {
		t.Error("a string and a number can be compared")
	}
}

// Whatever stands in a file, it is a graph that can be ordered and checked, or an
// error.
func FuzzParse(f *testing.F) {
	f.Add([]byte(reviews))
	f.Add([]byte("tasks: {a: {input: 'x ${b.output[0].c}', when: '!(${b.status} == \"error\") || 1 < 2', after: [b]}, b: {input: y, schema: {type: object, properties: {c: {type: array}}}}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := Parse("graph.yaml", data, nil)
		if err != nil {
			return
		}
		if order, err := g.Order(); err != nil || len(order) != len(g.Tasks) {
			t.Errorf("%v, %v", order, err)
		}
		Check(g, nil)
	})
}
