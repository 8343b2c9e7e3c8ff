package cli

import (
	"testing"

	"github.com/spf13/cobra"
)

func TestNearest(t *testing.T) {
	names := []string{"completion", "doctor", "model", "run", "runs", "spawn", "version"}
	for word, want := range map[string]string{
		"spwan":     "spawn",
		"doc":       "doctor",
		"verison":   "version",
		"rum":       "run",
		"run":       "run",
		"Model":     "model",
		"":          "",
		"x":         "",
		"r":         "",
		"elephant":  "",
		"versionen": "version",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s lacks a Short line or an Example", cmd.CommandPath())
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(newRoot())
}
