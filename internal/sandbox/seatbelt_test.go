package sandbox

import (
	"strings"
	"testing"
)

func TestSeatbeltProfile(t *testing.T) {
	p := Profile{Level: Strict, Network: Web, Read: []string{"/r", `/w/a "b`}, Write: []string{"/w"}, Hide: []string{"/w/.nestor"}}
	got := seatbelt(p, []string{"/usr"})
	at := -1
	for _, line := range []string{ // in this order: the last one wins
		"(deny default)",
		`(allow file-read* (subpath "/usr"))`,
		`(allow file-read* (subpath "/r"))`,
		`(allow file-read* file-write* (subpath "/w"))`,
		`(deny file-write* (subpath "/w/a \"b"))`,
		`(deny file-read* file-write* (subpath "/w/.nestor"))`,
		`(allow network-outbound (remote tcp "*:*"))`,
	} {
		i := strings.Index(got, line+"\n")
		if i <= at {
			t.Errorf("%s is not there, or not in its place:\n%s", line, got)
		}
		at = i
	}
	p.Network = None
	if got := seatbelt(p, nil); strings.Contains(got, "network") {
		t.Errorf("without a network it allows some:\n%s", got)
	}
}
