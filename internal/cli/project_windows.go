package cli

import "io/fs"

// mine is true: folders of other users cannot be written to here.
func mine(fs.FileInfo) bool { return true }
