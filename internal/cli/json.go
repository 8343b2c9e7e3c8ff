package cli

import (
	"encoding/json"
	"io"
)

// printJSON writes v as the one document of a command with --json.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
