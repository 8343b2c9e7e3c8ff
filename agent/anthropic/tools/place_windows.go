package tools

import "io/fs"

const openFlags = 0

// hardLinks cannot tell here: what a folder's listing says has no count.
func hardLinks(fs.FileInfo) uint64 { return 1 }
