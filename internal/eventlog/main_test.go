package eventlog

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor/internal/broker"
)

// roleVariable makes the test binary a server in a process of its own. Its
// options are the value, as JSON.
const roleVariable = "NESTOR_EVENTLOG_SERVER"

func TestMain(m *testing.M) {
	if options := os.Getenv(roleVariable); options != "" {
		if err := serve(options); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The NATS client leaves it behind when an object is put into its store before this
	// goroutine, which is started for that, has once run.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}

type serverOptions struct {
	Dir    string
	Listen broker.Listen
}

func serve(options string) error {
	var o serverOptions
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return err
	}
	b, err := broker.Open(context.Background(), broker.Options{Dir: o.Dir, Listen: o.Listen})
	if err != nil {
		return err
	}
	fmt.Println("open")
	io.Copy(io.Discard, os.Stdin)
	return b.Close()
}

// process is a server.
type process struct {
	options serverOptions
	cmd     *exec.Cmd
	out     *bufio.Scanner
	stderr  *strings.Builder
}

func startServer(t testing.TB, o serverOptions) *process {
	t.Helper()
	p := &process{options: o}
	p.start(t)
	t.Cleanup(func() { p.kill(t) })
	return p
}

func (p *process) start(t testing.TB) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p.options)
	if err != nil {
		t.Fatal(err)
	}
	p.cmd, p.stderr = exec.Command(exe), &strings.Builder{}
	p.cmd.Env = append(os.Environ(), roleVariable+"="+string(text))
	p.cmd.Stderr = p.stderr
	if _, err := p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// opened waits until the server can be used.
func (p *process) opened() error {
	if p.out.Scan(); p.out.Text() != "open" {
		p.cmd.Wait()
		return fmt.Errorf("server %s did not open: %s", p.options.Dir, p.stderr)
	}
	return nil
}

// kill ends it with SIGKILL.
func (p *process) kill(t testing.TB) {
	p.cmd.Process.Kill()
	for p.out.Scan() {
	}
	p.cmd.Wait()
}

const token = "secret"

// place is where a log can be: what the contract holds for.
type place struct {
	name    string
	options broker.Options // of a client
	servers []*process     // that can be killed and started again; nil if embedded
}

func embedded(t testing.TB) *place {
	return &place{name: "embedded", options: broker.Options{Dir: t.TempDir()}}
}

func otherProcess(t testing.TB) *place {
	port := freePort(t)
	p := startServer(t, serverOptions{Dir: t.TempDir(), Listen: broker.Listen{Port: port, Token: token}})
	if err := p.opened(); err != nil {
		t.Fatal(err)
	}
	return &place{
		name:    "other process",
		options: broker.Options{URL: "nats://nestor:" + token + "@127.0.0.1:" + strconv.Itoa(port)},
		servers: []*process{p},
	}
}

func cluster(t testing.TB) *place {
	var routes, urls []string
	var clients, ports [3]int
	for i := range ports {
		clients[i], ports[i] = freePort(t), freePort(t)
		routes = append(routes, "127.0.0.1:"+strconv.Itoa(ports[i]))
		urls = append(urls, "nats://nestor:"+token+"@127.0.0.1:"+strconv.Itoa(clients[i]))
	}
	at := &place{name: "cluster", options: broker.Options{URL: strings.Join(urls, ",")}}
	for i := range ports {
		at.servers = append(at.servers, startServer(t, serverOptions{Dir: t.TempDir(), Listen: broker.Listen{
			Port: clients[i], Token: token, Cluster: "nest", Name: fmt.Sprint("server-", i), ClusterPort: ports[i], Routes: routes,
		}}))
	}
	for _, p := range at.servers {
		if err := p.opened(); err != nil {
			t.Fatal(err)
		}
	}
	return at
}

// freePort returns a port that nobody listens on. It is none of those that who dials
// is given: a server that starts a moment later would find it taken.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 20_000+rand.IntN(12_000)))
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	t.Fatal("no port is free")
	return 0
}

// open runs a log until the test ends.
func (p *place) open(t testing.TB, o Options) *Log {
	t.Helper()
	l, _ := p.openBroker(t, o)
	return l
}

func (p *place) openBroker(t testing.TB, o Options) (l *Log, closeAll func()) {
	t.Helper()
	b, err := broker.Open(soon(t), p.options)
	if err != nil {
		t.Fatal(err)
	}
	l = New(b, o)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.Run(ctx); err != nil {
			t.Errorf("the log ended: %v", err)
		}
	})
	var once sync.Once
	closeAll = func() {
		once.Do(func() {
			cancel()
			wg.Wait()
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(closeAll)
	return l, closeAll
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 2*time.Minute, errors.New("the test waited for two minutes"))
	t.Cleanup(cancel)
	return ctx
}

// write is Write for events that are anything.
func (w *Writer) write(ctx context.Context, events ...json.RawMessage) error {
	lines, err := oneLineEach(events)
	if err != nil {
		return w.wrap(err)
	}
	return w.Write(ctx, lines...)
}
