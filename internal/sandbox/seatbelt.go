package sandbox

import (
	"slices"
	"strings"
)

// seatbelt returns the profile in the language of macOS's sandbox-exec. What is
// said last wins there. It was written from the documentation of that language
// and has not been run.
func seatbelt(p Profile, system []string) string {
	var b strings.Builder
	b.WriteString("(version 1)\n(deny default)\n(allow process-fork process-exec)\n(allow signal process-info* (target same-sandbox))\n(allow sysctl-read mach-lookup)\n")
	b.WriteString("(allow file-read-metadata)\n")
	rule := func(action string, paths []string) {
		for _, path := range paths {
			b.WriteString("(" + action + " (subpath " + quoted(path) + "))\n")
		}
	}
	rule("allow file-read*", slices.Concat(system, p.Read))
	rule("allow file-read* file-write*", p.Write)
	for _, path := range p.Read {
		if slices.ContainsFunc(p.Write, func(dir string) bool { return strings.HasPrefix(path, dir+"/") }) {
			rule("deny file-write*", []string{path})
		}
	}
	rule("deny file-read* file-write*", p.Hide)
	switch {
	case p.Level != Strict || p.Network == All:
		b.WriteString("(allow network*)\n")
	case p.Network == Web:
		b.WriteString("(allow network-outbound (remote tcp \"*:*\"))\n(allow network-outbound (literal \"/private/var/run/mDNSResponder\"))\n")
	}
	return b.String()
}

// quoted returns text as a string of that language.
func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}
