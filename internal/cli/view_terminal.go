package cli

import (
	"os"

	"golang.org/x/term"
)

// terminalOf returns how to ask for the size of the terminal that w is, nil if it
// is none.
func terminalOf(w any) func() (cols, rows int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return func() (cols, rows int) {
		cols, rows, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0, 0 // newView knows what to do about it
		}
		return cols, rows
	}
}
