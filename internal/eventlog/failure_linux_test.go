package eventlog

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dfaf701a/nestor/internal/broker"
)

func TestFullDiskIsAnErrorAndLosesNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	mounted := t.TempDir()
	if err := syscall.Mount("tmpfs", mounted, "tmpfs", 0, "size=12m"); err != nil {
		t.Skip("mounting a tmpfs:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(mounted, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(mounted, "broker")
	b, err := broker.Open(soon(t), broker.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	l := New(b, Options{})
	ended := make(chan error, 1)
	go func() { ended <- l.Run(context.Background()) }()
	ctx := soon(t)
	var acknowledged []Position
	for err == nil {
		var p []Position
		if p, err = l.Append(ctx, "r", "r", event("%s", strings.Repeat("x", 100_000))); err == nil {
			acknowledged = append(acknowledged, p...)
		}
	}
	for what, err := range map[string]error{"Append": err, "Run": <-ended} {
		if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "free space") {
			t.Errorf("%s: %v", what, err)
		}
	}
	b.Close() // it cannot write its marks either
	if err := syscall.Mount("", mounted, "", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	l = (&place{options: broker.Options{Dir: dir}}).open(t, Options{})
	for i, e := range first(t, l.Follow(ctx, Filter{}, 0), len(acknowledged)) {
		if e.Position != acknowledged[i] {
			t.Fatalf("event %d is at %d, and was acknowledged at %d", i, e.Position, acknowledged[i])
		}
	}
	if _, err := l.Append(ctx, "r", "r", event("more")); err != nil {
		t.Error(err)
	}
}
