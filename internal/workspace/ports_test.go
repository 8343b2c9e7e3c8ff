package workspace

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func portsOf(t *testing.T, sp *Space) (first, count int) {
	t.Helper()
	for _, entry := range sp.Env {
		name, value, _ := strings.Cut(entry, "=")
		n, err := strconv.Atoi(value)
		switch {
		case err != nil:
			t.Fatal(err)
		case name == "NESTOR_PORT_BASE":
			first = n
		case name == "NESTOR_PORT_COUNT":
			count = n
		}
	}
	return first, count
}

// Ports that somebody listens on, or that another run has, are not handed out;
// those of a run that is over or gone are.
func TestPorts(t *testing.T) {
	t.Parallel()
	dir, file := realDir(t), filepath.Join(t.TempDir(), "ports")
	s := New(SpaceOptions{Project: dir, Ports: 5, PortsFile: file})
	other := New(SpaceOptions{Project: realDir(t), Ports: 7, PortsFile: file})
	one := mustOpen(t, s, Request{Run: newRun()})
	first, count := portsOf(t, one)
	if first < firstPort || first+count-1 > lastPort || count != 5 {
		t.Fatalf("it got %d ports from %d on", count, first)
	}
	var had []block
	for range 20 {
		first, count := portsOf(t, mustOpen(t, other, Request{Run: newRun()}))
		b := block{First: first, Count: count}
		if meets(append(had, block{First: first, Count: 0}), b) || first < one.spaces.options.Ports {
			t.Errorf("%d is handed out twice", first)
		}
		had = append(had, b)
	}
	// The same run, after a crash: the same ports, unless somebody took them.
	one.lock.Close()
	again := mustOpen(t, s, Request{Run: one.rec.Run})
	if got, _ := portsOf(t, again); got != first {
		t.Errorf("it got %d, and had %d", got, first)
	}
	again.lock.Close()
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+2)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	third := mustOpen(t, s, Request{Run: one.rec.Run})
	if got, _ := portsOf(t, third); got <= first+2 && first+2 < got+5 {
		t.Errorf("it got %d, where somebody listens on %d", got, first+2)
	}
	mustClose(t, third, Keep)
	text, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(text), string(one.rec.Run)) {
		t.Errorf("of a run that is over there is %s, %v", text, err)
	}
}

// A block is found where one is free, and none is said to be where none is.
func TestFindPorts(t *testing.T) {
	all := block{First: firstPort, Count: lastPort + 1 - firstPort}
	if got, err := findPorts([]block{all}, block{Count: 10}); err == nil {
		t.Errorf("found %d where all are taken", got)
	}
	all.Count -= 100
	if got, err := findPorts([]block{all}, block{Count: 100}); err == nil && got != lastPort-99 {
		t.Errorf("found %d, %v", got, err)
	}
}
