//go:build linux

package sandbox

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dfaf701a/nestor/internal/proxy"
)

// outlet serves an outlet with a proxy behind it until the test ends, or end is
// called, which returns the connections that were made.
func outlet(t testing.TB, o proxy.Options) (path string, end func() []proxy.Connection) {
	t.Helper()
	var mu sync.Mutex
	var all []proxy.Connection
	o.Report = func(c proxy.Connection) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, c)
	}
	o.Resolve = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	p, err := proxy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	// Longer than the name of a socket can be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "outlet")
	out, err := ListenOutlet(path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- out.Serve(context.Background(), func(ctx context.Context, l net.Listener) {
			if err := p.Serve(ctx, l); err != nil {
				t.Error(err)
			}
		})
	}()
	once := sync.OnceValue(func() []proxy.Connection {
		if err := out.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Error("the socket is left")
		}
		return all
	})
	t.Cleanup(func() { once() })
	return path, once
}

// get prints what is at a URL, by the proxy at the outlet.
func get(a []string) error {
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: OutletAddress}), DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Get(a[0])
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	return tell(resp.Body)
}

func needsOutlet(t testing.TB) {
	t.Helper()
	if r := Check(); !r.Outlet {
		t.Skip(r.Refuses(Strict, Hosts))
	}
}

// What is in the list is reached, what is not is refused, and both are reported.
func TestOutletLetsOutWhatIsAllowed(t *testing.T) {
	needsOutlet(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "the page for "+r.Host) }))
	defer s.Close()
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	path, end := outlet(t, proxy.Options{Own: []string{"good.test:" + port}})
	dir := t.TempDir()
	script := `$SELF attack get http://good.test:$PORT/; $SELF attack get http://evil.test:$PORT/; $SELF attack get https://evil.test:$PORT/; $SELF attack dial tcp 127.0.0.1:$PORT; $SELF attack dial tcp good.test:$PORT`
	cmd := command(t, Profile{Level: Strict, Network: Hosts, Outlet: path}, true, dir, "bash", "-c", script)
	cmd.Env = append(cmd.Env, "SELF="+self(t), "PORT="+port)
	out, _ := cmd.CombinedOutput()
	text := string(out)
	if strings.Count(text, "the page for good.test:"+port) != 1 || strings.Count(text, "the page") != 1 {
		t.Errorf("it reached what it must not, or did not what it may:\n%s", text)
	}
	if !strings.Contains(text, "403\nnestor: evil.test:"+port+" is not among the hosts that may be reached: good.test:"+port) {
		t.Errorf("it was not told why:\n%s", text)
	}
	var told []string
	for _, c := range end() {
		told = append(told, fmt.Sprintf("%s %v", c.Host, c.Allowed))
	}
	if got, want := strings.Join(told, ", "), "good.test true, evil.test false, evil.test false"; got != want {
		t.Errorf("reported %s, not %s", got, want)
	}
}

// A network of its own has nothing in it but loopback, where servers of the command
// can be reached.
func TestOwnNetworkHasLoopbackAlone(t *testing.T) {
	needsOutlet(t)
	path, _ := outlet(t, proxy.Options{})
	script := `cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '; wc -l < /proc/net/route; $SELF attack listen`
	cmd := command(t, Profile{Level: Strict, Network: Hosts, Outlet: path}, true, t.TempDir(), "bash", "-c", script)
	cmd.Env = append(cmd.Env, "SELF="+self(t))
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil || !strings.Contains(text, "lo\n") || !strings.Contains(text, "ESCAPED") || strings.Contains(text, "eth") {
		t.Errorf("%v:\n%s", err, text)
	}
}

// Without an outlet the command is not run.
func TestOutletThatIsGone(t *testing.T) {
	needsOutlet(t)
	path, end := outlet(t, proxy.Options{})
	cmd := command(t, Profile{Level: Strict, Network: Hosts, Outlet: path}, true, t.TempDir(), "echo", "it runs")
	end()
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != ExitFailure || !strings.Contains(string(out), "nestor: sandbox: making a network: connecting to the outlet: ") {
		t.Errorf("%v: %s", cmd.ProcessState, out)
	}
}

// What is no listener is not taken for one.
func TestOutletTakesListenersAlone(t *testing.T) {
	path, end := outlet(t, proxy.Options{})
	k := &startedKeeper{}
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := k.connect(path, int(f.Fd())); err == nil || !strings.Contains(err.Error(), "no listener") {
		t.Errorf("a file: %v", err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	if err := k.connect(path, s); err == nil || !strings.Contains(err.Error(), "no listener") {
		t.Errorf("a socket: %v", err)
	}
	conn, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/outlet", openDir(t, filepath.Dir(path))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
	if said, _ := io.ReadAll(conn); !strings.HasPrefix(string(said), "n0 descriptors came") {
		t.Errorf("words: %q", said)
	}
	end()
}

func openDir(t *testing.T, dir string) int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func TestHostsNeedALevelAndAnOutlet(t *testing.T) {
	for _, p := range []Profile{
		{Level: Files, Network: Hosts, Outlet: "/x"},
		{Level: Strict, Network: Hosts},
		{Level: Strict, Network: Web, Outlet: "/x"},
		{Level: Strict, Network: Hosts, Outlet: "x"},
	} {
		if _, err := Wrap(p); err == nil {
			t.Errorf("%+v is taken", p)
		}
	}
	err := Report{Landlock: 7, Why: "no namespaces can be had: not here"}.Refuses(Strict, Hosts)
	if err == nil || !strings.Contains(err.Error(), "not here") || !strings.Contains(err.Error(), "leave the hosts out") {
		t.Error(err)
	}
}
