package api_test

import (
	"testing"
	"time"

	"github.com/dfaf701a/nestor"
	"github.com/dfaf701a/nestor/api"
)

func TestTraces(t *testing.T) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	got, err := api.ParseTrace(good)
	if err != nil || got.String() != good {
		t.Errorf("%s is %+v, %v", good, got, err)
	}
	for _, bad := range []string{
		"", "00", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", good + "-x", good[:50],
	} {
		if got, err := api.ParseTrace(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
	if _, err := api.ParseTrace("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"); err != nil {
		t.Errorf("one of a newer version: %v", err)
	}
	root, run := nestor.NewID(time.Now()), nestor.NewID(time.Now())
	own := api.TraceOf("", root, run)
	if parsed, err := api.ParseTrace(own.String()); err != nil || parsed != own {
		t.Errorf("the root's own is %s, %v", own, err)
	}
	given := api.TraceOf(good, root, run)
	if given.ID != got.ID || given.Span != own.Span || given.Span == got.Span {
		t.Errorf("in a given one it is %s", given)
	}
}

func FuzzParseTrace(f *testing.F) {
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Add("----")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := api.ParseTrace(text)
		if err != nil {
			return
		}
		if again, err := api.ParseTrace(got.String()); err != nil || again != got {
			t.Errorf("%q is %+v, which is %+v, %v", text, got, again, err)
		}
	})
}
