package tools

import (
	"fmt"
	"os"
	"strings"
)

// stillNamed tells whether the name that f was opened by still exists, perhaps
// as another name. One that ends in "(deleted)" does not count.
//
// It makes the count of hard links mean something. A file outside that is linked
// in, opened, and unlinked before it is looked at has one link, like any other.
// But a name that is taken away is gone for good, as far as the open file is
// concerned: if it is there now, it was there when the links were counted, and
// was the one that was counted.
func stillNamed(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var path string
	if cerr := conn.Control(func(fd uintptr) { path, err = os.Readlink(fmt.Sprint("/proc/self/fd/", fd)) }); cerr != nil || err != nil {
		return false
	}
	return !strings.HasSuffix(path, " (deleted)")
}
