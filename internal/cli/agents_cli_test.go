package cli_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dfaf701a/nestor/internal/agentfile"
	"github.com/dfaf701a/nestor/scriptmodel"
)

// What we make of the text of a command is what the Claude CLI makes of it.
func TestTextsAreAsTheCLIMakesThem(t *testing.T) {
	cli := newPlaces(t, true)
	model := scriptmodel.Start(t, `rules: [{repeat: true, turns: [{text: "{{.Prompt}}"}]}]`)
	for _, test := range []struct{ name, text, input string }{
		{"numbers", "Zero [$0] one [$1] two [$2] nine [$9] sum $500 all [$ARGUMENTS]", "alpha 'beta gamma' delta"},
		{"indexes", "[$ARGUMENTS[0]] [$ARGUMENTS[1]] [$ARGUMENTS[7]]", "alpha beta"},
		{"nothing-used", "Nothing is used here.", "alpha beta"},
		{"sums", "It costs $5 or $500.", "alpha"},
		{"named", "---\narguments: [what, how]\n---\nDo $what by $how, not $else.", "alpha beta"},
		{"colon", "---\ndescription: use it when: asked\n---\nDo $ARGUMENTS", "alpha"},
		{"braces", "{{ .Values.name }} and {{.Version}} for $0", "alpha"},
		{"files", "See @nowhere.txt and mail@example.com. $0", "alpha"},
		{"unquoted", "[$0] [$1]", "it's fine"},
		{"unquoted2", "[$0] [$1] [$2] [$3]", "alpha it's fine beta"},
		{"unquoted3", "[$0] [$1] [$2] [$3]", "'alpha beta' it's \"fine beta"},
		{"backslashes", "[$0] [$1] [$2] [$3]", "a\\ b c\\d e f"},
	} {
		t.Run(test.name, func(t *testing.T) {
			writeNew(t, filepath.Join(cli.Dir, ".claude", "commands", test.name+".md"), test.text)
			cmd := exec.CommandContext(t.Context(), cli.Path, "-p", "/"+test.name+" "+test.input)
			cmd.Dir, cmd.Env = cli.Dir, append(cli.Env, scriptmodel.ClientEnv(model.URL)...)
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			_, theirs, ok := strings.Cut(string(out), "</command-args>\n")
			if !ok {
				t.Fatalf("it says %s", out)
			}
			d, problems := agentfile.Parse(agentfile.Source{File: test.name + ".md"}, agentfile.Command, test.name, []byte(test.text), nil)
			if d == nil {
				t.Fatal(problems)
			}
			ours := d.Render(t.Context(), agentfile.Facts{Input: test.input, Dir: cli.Dir})
			if ours.Problem != nil || ours.Message != strings.TrimSpace(theirs) {
				t.Errorf("we say\n%s\n%v\nthe CLI says\n%s", ours.Message, ours.Problem, theirs)
			}
		})
	}
}
