package eventlog

import (
	"context"
	"time"
)

// Pace has a follower whom nobody waits for leave the processor to those who write
// what it follows: after each burst of work it rests. Its zero value never does.
type Pace struct {
	Times  int           // how many times as long as it has worked it rests
	worked time.Duration // since it rested last
}

// burst is how long is worked at a stretch: what comes a piece at a time is not
// held up.
const burst = 10 * time.Millisecond

// Rest says that it worked since a time, and rests if it is time to, or until ctx
// ends.
func (p *Pace) Rest(ctx context.Context, since time.Time) {
	if p.worked += time.Since(since); p.worked < burst {
		return
	}
	rest := time.NewTimer(time.Duration(p.Times) * p.worked)
	defer rest.Stop()
	p.worked = 0
	select {
	case <-rest.C:
	case <-ctx.Done():
	}
}
