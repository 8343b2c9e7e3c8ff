package engine

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
)

// A message is given up when its run is gone, and only then, however often it comes.
func TestVain(t *testing.T) {
	for _, c := range []struct {
		delivered int
		err       error
		want      bool
	}{
		{1, errNowhere, false},
		{100, errNowhere, true},
		{100, fmt.Errorf("run x: %w", errNowhere), true},
		{100, errUnconfirmed, false},
		{100, errConflict, false},
	} {
		msg := &nats.Msg{Sub: &nats.Subscription{}, Reply: fmt.Sprintf("$JS.ACK.tasks.any.%d.7.7.1794957735334209557.0", c.delivered)}
		if got := vain(msg, c.err); got != c.want {
			t.Errorf("delivered %d times, %v: %t", c.delivered, c.err, got)
		}
	}
}
