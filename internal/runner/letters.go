package runner

import (
	"context"
	"fmt"

	"github.com/dfaf701a/nestor/agent"
)

// push hands letters to an agent that works, until ctx ends or it works no more.
func (c *conversation) push(ctx context.Context, a agent.Pusher) {
	for {
		letters, more := c.unheard()
		for _, l := range letters {
			if a.Push(ctx, letter(l)) != nil {
				return // it is given them when it is done
			}
			c.give(l.N)
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

// unheard returns the letters that the agent was not given, and a channel that is
// closed when there may be more.
func (c *conversation) unheard() ([]Letter, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.host.Letters(c.given)
}

// expect waits for what the run has started and not waited for: it is heard
// before the run ends.
func (c *conversation) expect(ctx context.Context) error {
	c.mu.Lock()
	given := c.given
	c.mu.Unlock()
	if _, err := c.host.Expect(ctx, given); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("waiting for what the run has started: %w", err)
	}
	return nil
}

func (c *conversation) give(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.given = max(c.given, n)
}

// heard takes note that the agent has dealt with what it was given.
func (c *conversation) heard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.given > 0 {
		c.host.Heard(c.given)
	}
}

// together makes one message of letters, and takes note that it is given.
func (c *conversation) together(list []Letter) agent.Message {
	m := letter(list[0])
	for _, l := range list[1:] {
		m.Content += "\n\n" + letter(l).Content
	}
	c.give(list[len(list)-1].N)
	return m
}

func letter(l Letter) agent.Message {
	from := l.From
	if from == "" {
		from = "somebody"
	}
	return agent.NewMessage(from, "Message from "+from+":\n"+l.Content)
}
