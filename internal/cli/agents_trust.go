package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/dfaf701a/nestor/internal/agentfile"
)

// trustsAgents returns what tells whether the user trusts what a project's agent
// wants to be executed or approved. It looks at what is on record each time, so
// that a daemon need not be started again.
func trustsAgents(project string, env []string) func(agentfile.Definition) bool {
	vars := variables(env)
	return func(d agentfile.Definition) bool {
		if vars[trustVariable] == "1" {
			return true
		}
		files, err := configFiles(project, vars)
		if err != nil {
			return false
		}
		all, err := readTrusted(trustFile(files))
		return err == nil && all.Agents[d.Source.Path] == d.Fingerprint()
	}
}

// wishfulAgents returns those agents of a project that want something which needs
// trust.
func wishfulAgents(project string) []agentfile.Definition {
	set, _ := libraryOf(project).Load() // what is the user's own wants nothing, but skills of it may be named
	var list []agentfile.Definition
	for _, e := range set.Entries() {
		if d, ok := e.Definition(); ok && d.Fingerprint() != "" {
			list = append(list, d)
		}
	}
	return list
}

// printAgentWishes prints what agents want.
func printAgentWishes(w io.Writer, list []agentfile.Definition) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, d := range list {
		for _, wish := range d.Wishes() {
			fmt.Fprintf(table, "%s\t%s\t%s\n", quotedUnlessPlain(d.Source.File), wish.Key, oneLine(printable(wish.Value)))
		}
	}
	return table.Flush()
}
