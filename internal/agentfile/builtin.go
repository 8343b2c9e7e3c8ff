package agentfile

import (
	"embed"
	"path"
)

//go:embed builtin/*.md
var builtinFiles embed.FS

// builtin adds the agents that everybody has.
func (s *scan) builtin() {
	all, err := builtinFiles.ReadDir("builtin")
	if err != nil {
		s.errs = append(s.errs, err)
		return
	}
	for _, d := range all {
		data, err := builtinFiles.ReadFile(path.Join("builtin", d.Name()))
		if err != nil {
			s.errs = append(s.errs, err)
			continue
		}
		src := Source{Scope: Builtin, File: "builtin/" + d.Name()}
		e := Entry{Name: stem(d.Name()), Kind: Agent, Source: src}
		e.definition, e.Problems = Parse(src, Agent, e.Name, data, nil)
		s.entries = append(s.entries, e)
	}
}
