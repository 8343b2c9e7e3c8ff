package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
)

// roleVariable makes the test binary play a process of its own.
const roleVariable = "NESTOR_BROKER_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := roles[role](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

var roles = map[string]func() error{
	"migrate": migrate,
	// hold opens the folder, says so and waits for the end of its input.
	"hold": func() error {
		b, err := Open(context.Background(), Options{Dir: os.Getenv("DIR")})
		if err != nil {
			return err
		}
		fmt.Println("open")
		io.Copy(io.Discard, os.Stdin)
		return b.Close()
	},
	// purge publishes, waits for the marks and purges, twice, the second time all.
	"purge": func() error {
		ctx := context.Background()
		b, err := Open(ctx, Options{Dir: os.Getenv("DIR")})
		if err != nil {
			return err
		}
		for i := range 1000 {
			if _, err := b.JetStream().Publish(ctx, fmt.Sprint("event.a.", i%7), []byte("x")); err != nil {
				return err
			}
		}
		s, err := b.JetStream().Stream(ctx, Events)
		if err != nil {
			return err
		}
		if err := s.Purge(ctx, jetstream.WithPurgeSubject("event.a.3")); err != nil {
			return err
		}
		if err := b.mark(); err != nil {
			return err
		}
		if err := s.Purge(ctx); err != nil {
			return err
		}
		fmt.Println("purged")
		io.Copy(io.Discard, os.Stdin)
		return nil
	},
	// write publishes for ever and prints the sequence of what was acknowledged.
	"write": func() error {
		b, err := Open(context.Background(), Options{Dir: os.Getenv("DIR")})
		if err != nil {
			return err
		}
		defer b.Close()
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-b.Failed()
			cancel()
		}()
		size, _ := strconv.Atoi(os.Getenv("SIZE"))
		data := []byte(strings.Repeat("x", max(size, 300)))
		for n := 0; ; n++ {
			var last uint64
			var err error
			if n%5 == 4 {
				var several []*nats.Msg
				for range 7 {
					several = append(several, &nats.Msg{Subject: "event.root.run", Data: data})
				}
				last, err = b.Together(ctx, several)
			} else {
				var ack *jetstream.PubAck
				if ack, err = b.JetStream().Publish(ctx, "event.root.run", data); err == nil {
					last = ack.Sequence
				}
			}
			if err != nil {
				return b.Explain(err)
			}
			fmt.Println(last)
		}
	},
}

// child is a process that plays a role.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Scanner
	err   *strings.Builder
}

func start(t *testing.T, role, dir string, env ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(exe), err: &strings.Builder{}}
	c.cmd.Env = append(append(os.Environ(), roleVariable+"="+role, "DIR="+dir), env...)
	c.cmd.Stderr = c.err
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	return c
}

// line is the next that the child prints, "" at its end.
func (c *child) line() string {
	c.out.Scan()
	return c.out.Text()
}

// kill ends the child with SIGKILL. What it printed can still be read.
func (c *child) kill() { c.cmd.Process.Kill() }

// wait returns what the child printed to stderr, and whether it failed.
func (c *child) wait() (string, bool) {
	for c.out.Scan() {
	}
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return c.err.String(), err != nil
}

// soon bounds what must not take for ever.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("the test waited for a minute"))
	t.Cleanup(cancel)
	return ctx
}

func mustOpen(t testing.TB, o Options) *Broker {
	t.Helper()
	b, err := Open(soon(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func publish(t testing.TB, b *Broker, subject string, n int) uint64 {
	t.Helper()
	var last uint64
	for i := range n {
		ack, err := b.JetStream().Publish(soon(t), subject, fmt.Appendf(nil, "message %d %s", i, strings.Repeat("x", 300)))
		if err != nil {
			t.Fatal(b.Explain(err))
		}
		last = ack.Sequence
	}
	return last
}

func mustClose(t testing.TB, b *Broker) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}
