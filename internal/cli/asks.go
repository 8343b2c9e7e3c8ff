package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dfaf701a/nestor/api"
)

func newAsks() *cobra.Command {
	cmd := newGroup("asks", "See and answer what agents ask", newAsksList(), newAsksAnswer())
	cmd.Example = "nestor asks list\nnestor asks answer 5a1c2b3d allow --scope run"
	return cmd
}

func newAsksList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the questions that are open",
		Example: "nestor asks list\nnestor asks list --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withRuns(cmd, func(ctx context.Context, client *api.Client) error {
				asks, err := client.Asks(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string][]api.OpenAsk{"asks": append([]api.OpenAsk{}, asks...)})
				}
				return listAsks(cmd.OutOrStdout(), asks, time.Now())
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print them as one JSON document")
	return cmd
}

// listAsks prints questions for people.
func listAsks(w io.Writer, asks []api.OpenAsk, now time.Time) error {
	if len(asks) == 0 {
		_, err := fmt.Fprintln(w, "nothing is asked")
		return err
	}
	var b strings.Builder
	for _, a := range asks {
		fmt.Fprintf(&b, "%s  %s\n", oneLine(a.ID), oneLine(questionOf(a)))
		if len(a.Input) > 0 {
			fmt.Fprintf(&b, "  input    %s\n", oneLine(string(a.Input)))
		}
		if len(a.Options) > 0 {
			fmt.Fprintf(&b, "  options  %s\n", oneLine(strings.Join(a.Options, ", ")))
		}
		fmt.Fprintf(&b, "  run      %s\n", oneLine(pathOf(a)))
		if !a.Until.IsZero() {
			fmt.Fprintf(&b, "  until    %s, then: %s\n", a.Until.Local().Format("15:04:05"), oneLine(defaultOf(a)))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func questionOf(a api.OpenAsk) string {
	if a.Question != "" {
		return a.Question
	}
	return "may it use " + a.Tool + "?"
}

func defaultOf(a api.OpenAsk) string {
	if a.Default == "" {
		return "no answer"
	}
	return a.Default
}

// pathOf says where in its tree a run is.
func pathOf(a api.OpenAsk) string {
	var names []string
	for i, id := range a.Path {
		name := string(id)
		if i < len(a.Agents) && a.Agents[i] != "" {
			name = a.Agents[i]
		}
		if i == len(a.Path)-1 && name != string(id) {
			name += " (" + string(id) + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, " → ")
}

func newAsksAnswer() *cobra.Command {
	var scope string
	cmd := &cobra.Command{
		Use:   "answer ID allow|deny|TEXT",
		Short: "Answer a question",
		Long: `Answer a question of an agent. The id may be abbreviated. The first answer counts.

A question whether a tool may be used is answered with allow or deny; with --scope
run the answer holds for all like it in the run, with --scope role in all runs of
the tree with the same role. Other questions are answered with a text, one of the options if there
are some.`,
		Example: "nestor asks answer 5a1c2b3d allow\nnestor asks answer 5a1c2b3d 'the second one'",
		Args:    runArgs("a question's id", "an answer"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"once", "run", "role"}, scope) {
				return misuse(cmd, "--scope %.40q: there are once, run and role", scope)
			}
			if strings.TrimSpace(args[1]) == "" {
				return misuse(cmd, "the answer is empty")
			}
			return withRuns(cmd, func(ctx context.Context, client *api.Client) error {
				ask, err := findAsk(ctx, client, args[0])
				if err != nil {
					return err
				}
				return answerAsk(ctx, client, cmd.OutOrStdout(), ask, args[1], scope)
			})
		},
	}
	cmd.Flags().StringVar(&scope, "scope", "once", "how far it reaches: `once`, run or role")
	return cmd
}

// findAsk finds the open question whose id begins with text.
func findAsk(ctx context.Context, client *api.Client, text string) (api.OpenAsk, error) {
	asks, err := client.Asks(ctx)
	if err != nil {
		return api.OpenAsk{}, err
	}
	var found []api.OpenAsk
	for _, a := range asks {
		if a.ID == text {
			return a, nil
		}
		if strings.HasPrefix(a.ID, text) {
			found = append(found, a)
		}
	}
	switch {
	case len(found) == 1 && text != "":
		return found[0], nil
	case len(found) > 1:
		return api.OpenAsk{}, fmt.Errorf("%d questions begin with %q; give more of the id", len(found), text)
	}
	return api.OpenAsk{}, fmt.Errorf("no open question %.60q; 'nestor asks list' prints them", text)
}

// answerAsk answers a question, if it can be answered so.
func answerAsk(ctx context.Context, client *api.Client, w io.Writer, a api.OpenAsk, text, scope string) error {
	if a.Tool != "" && text != "allow" && text != "deny" {
		return fmt.Errorf("%.60q: whether %s may be used is answered with allow or deny", text, a.Tool)
	}
	if len(a.Options) > 0 && !slices.Contains(a.Options, text) {
		return fmt.Errorf("%.60q: the options are %s", text, strings.Join(a.Options, ", "))
	}
	if err := client.Answer(ctx, a.Run, a.ID, api.Answer{Decision: text, By: person(os.Getenv), Scope: scope}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "run %s is told: %s\n", a.Run, oneLine(text))
	return err
}

// person returns the name of who answers.
func person(env func(string) string) string {
	if name := env("USER"); name != "" {
		return name
	}
	return commandLine
}

// asking is what is asked while a run is followed, on a terminal where somebody can
// answer.
type asking struct {
	open  []api.OpenAsk
	lines chan string // read from the terminal; nil until something is asked
}

// errNotAsked says that somebody typed something and was not asked.
var errNotAsked = errors.New("nothing is asked")

// take takes the oldest question.
func (a *asking) take() (api.OpenAsk, error) {
	if len(a.open) == 0 {
		return api.OpenAsk{}, errNotAsked
	}
	return a.open[0], nil
}

// drop forgets a question that was answered.
func (a *asking) drop(id string) {
	a.open = slices.DeleteFunc(a.open, func(o api.OpenAsk) bool { return o.ID == id })
}
