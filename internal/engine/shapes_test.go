package engine_test

import (
	"bufio"
	"context"
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

	"github.com/dfaf701a/nestor/internal/broker"
)

// shape is a kind of broker that the suite runs on.
type shape struct {
	t       testing.TB
	servers []*process
	b       *broker.Broker // of an embedded one, which all nodes share
	urls    []string
}

// connect returns a broker for one more node.
func (s *shape) connect(t testing.TB) *broker.Broker {
	t.Helper()
	if s.b != nil {
		return s.b
	}
	return dial(t, s.urls...)
}

func dial(t testing.TB, urls ...string) *broker.Broker {
	t.Helper()
	replicas := min(len(urls), 3)
	b, err := broker.Open(within(t), broker.Options{URL: strings.Join(urls, ","), Replicas: replicas})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

const token = "secret"

// alone is a server in a process of its own.
func alone(t testing.TB) *shape {
	t.Helper()
	port := freePorts(t, 1)[0]
	p := start(t, "server", "DIR="+t.TempDir(), "PORT="+strconv.Itoa(port))
	p.expect("ready")
	return &shape{t: t, servers: []*process{p}, urls: []string{url(port)}}
}

func url(port int) string { return fmt.Sprintf("nats://nestor:%s@127.0.0.1:%d", token, port) }

// cluster is three servers in three processes.
func cluster(t testing.TB) *shape {
	t.Helper()
	ports := freePorts(t, 6)
	s := &shape{t: t}
	var routes []string
	for i := range 3 {
		routes = append(routes, fmt.Sprintf("127.0.0.1:%d", ports[3+i]))
		s.urls = append(s.urls, url(ports[i]))
	}
	for i := range 3 {
		s.servers = append(s.servers, start(t, "server", "DIR="+t.TempDir(), "PORT="+strconv.Itoa(ports[i]),
			"NAME=n"+strconv.Itoa(i), "CLUSTER_PORT="+strconv.Itoa(ports[3+i]), "ROUTES="+strings.Join(routes, ",")))
	}
	for _, p := range s.servers {
		p.expect("ready")
	}
	return s
}

// freePorts returns ports that nobody listens on. They are none of those that who dials
// is given: a server that starts a moment later would find them taken.
func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 20_000+rand.IntN(12_000)))
		if err != nil {
			continue
		}
		defer l.Close()
		if ports = append(ports, l.Addr().(*net.TCPAddr).Port); len(ports) == n {
			return ports
		}
	}
	t.Fatalf("%d ports are free, want %d", len(ports), n)
	return nil
}

// serve is a broker's server that others dial, until its input ends.
func serve() error {
	port, _ := strconv.Atoi(os.Getenv("PORT"))
	listen := broker.Listen{Port: port, Token: token}
	if name := os.Getenv("NAME"); name != "" {
		listen.Cluster, listen.Name, listen.Routes = "test", name, strings.Split(os.Getenv("ROUTES"), ",")
		listen.ClusterPort, _ = strconv.Atoi(os.Getenv("CLUSTER_PORT"))
	}
	b, err := broker.Open(context.Background(), broker.Options{Dir: os.Getenv("DIR"), Listen: listen})
	if err != nil {
		return err
	}
	defer b.Close()
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	return nil
}

// process is the test binary in another role.
type process struct {
	t     testing.TB
	role  string
	env   []string
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string // what it prints; closed at its end, by the goroutine that reads
	done  sync.WaitGroup
}

func start(t testing.TB, role string, env ...string) *process {
	t.Helper()
	p := &process{t: t, role: role, env: env}
	p.launch()
	t.Cleanup(p.kill)
	return p
}

func (p *process) launch() {
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd = exec.Command(exe)
	p.cmd.Env = append(append(os.Environ(), roleVariable+"="+p.role), p.env...)
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	lines := make(chan string, 10_000)
	p.lines = lines
	p.done.Go(func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	})
}

// expect waits until the process prints a line that begins with prefix, and
// returns the rest.
func (p *process) expect(prefix string) string {
	p.t.Helper()
	ctx := within(p.t)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("%s ended and never said %q", p.role, prefix)
			}
			if rest, found := strings.CutPrefix(line, prefix); found {
				return strings.TrimSpace(rest)
			}
		case <-ctx.Done():
			p.t.Fatalf("%s did not say %q", p.role, prefix)
		}
	}
}

// ready returns a channel that is closed when the process says that it is ready,
// or ends.
func (p *process) ready() <-chan struct{} {
	said := make(chan struct{})
	lines := p.lines
	go func() {
		defer close(said)
		for line := range lines {
			if line == "ready" {
				return
			}
		}
	}()
	return said
}

// kill ends the process with SIGKILL.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.stdin.Close()
	for range p.lines { // what nobody read must not keep it
	}
	p.done.Wait()
	p.cmd.Wait()
}

// restart kills the process and starts it again.
func (p *process) restart() {
	p.kill()
	p.launch()
}
