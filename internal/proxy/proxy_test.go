package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// reports are what a proxy reported.
type reports struct {
	mu   sync.Mutex
	list []Connection
}

func (r *reports) add(c Connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, c)
}

// start serves a proxy until the test ends, or end is called, which returns what
// was reported.
func start(t *testing.T, o Options) (address string, end func() []Connection) {
	t.Helper()
	var r reports
	o.Report = r.add
	if o.Resolve == nil {
		o.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx, l) }()
	once := sync.OnceValue(func() []Connection {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return r.list
	})
	t.Cleanup(func() { once() })
	return l.Addr().String(), once
}

// server serves one page and returns its port.
func server(t *testing.T, h http.HandlerFunc) (port string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port
}

// ask writes text to the proxy and returns all that it answers.
func ask(t *testing.T, address, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(conn, text)
	conn.(*net.TCPConn).CloseWrite()
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Errorf("reading the answer to %.60q: %v", text, err)
	}
	return string(answer)
}

func hello(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "host=%s uri=%s body=%s via=%s", r.Host, r.RequestURI, body, r.Header.Get("Proxy-Authorization")+r.Header.Get("X-Hop"))
}

func TestPlainRequestIsForwarded(t *testing.T) {
	port := server(t, hello)
	address, end := start(t, Options{Own: []string{"good.test:" + port}})
	got := ask(t, address, "POST http://GOOD.test.:"+port+"/a%2Fb?q=1 HTTP/1.1\r\nHost: evil.test\r\nProxy-Authorization: secret\r\nConnection: X-Hop\r\nX-Hop: 1\r\nContent-Length: 3\r\n\r\nabcGET http://good.test/second HTTP/1.1\r\n\r\n")
	if want := "host=good.test:" + port + " uri=/a%2Fb?q=1 body=abc via="; !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.HasSuffix(got, want) || strings.Contains(got, "second") {
		t.Errorf("answered %q, want %q at its end", got, want)
	}
	list := end()
	if len(list) != 1 || !list[0].Allowed || list[0].Rule != "own good.test:"+port || list[0].Host != "good.test" || fmt.Sprint(list[0].Port) != port ||
		list[0].Sent == 0 || list[0].Received == 0 || list[0].Address.String() != "127.0.0.1:"+port {
		t.Errorf("reported %+v", list)
	}
}

func TestTunnelCarriesTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(hello))
	defer s.Close()
	address, end := start(t, Options{Hosts: []string{"127.0.0.1:" + s.URL[strings.LastIndex(s.URL, ":")+1:]}})
	transport := s.Client().Transport.(*http.Transport).Clone()
	transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: address})
	resp, err := (&http.Client{Transport: transport}).Get(s.URL + "/x")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	transport.CloseIdleConnections()
	if !strings.Contains(string(body), "uri=/x") {
		t.Errorf("got %q", body)
	}
	if list := end(); len(list) != 1 || !list[0].Allowed || list[0].Sent < 100 || list[0].Received < 100 {
		t.Errorf("reported %+v", list)
	}
}

// What streams is not held back.
func TestAnswerIsStreamed(t *testing.T) {
	more := make(chan struct{})
	port := server(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		<-more
		io.WriteString(w, "second\n")
	})
	address, _ := start(t, Options{Own: []string{"good.test:" + port}})
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "GET http://good.test:%s/ HTTP/1.1\r\nHost: x\r\n\r\n", port)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(resp.Body)
	if line, err := r.ReadString('\n'); line != "first\n" {
		t.Fatalf("%q, %v", line, err)
	}
	close(more)
	if rest, err := io.ReadAll(r); string(rest) != "second\n" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

// None of these gets to a host that is not in the list, however it is written.
func TestWhatIsNotInTheListIsRefused(t *testing.T) {
	reached := make(chan string, 100)
	port := server(t, func(w http.ResponseWriter, r *http.Request) { reached <- r.Host + r.RequestURI })
	address, end := start(t, Options{
		Own: []string{"good.test"}, Hosts: []string{"*.wild.test:" + port, "private.test:" + port}, Hint: "ask for it",
	})
	for _, tt := range []struct{ name, request, status, rule string }{
		{"another host", "CONNECT evil.test:443 HTTP/1.1\r\n\r\n", "403", "hosts"},
		{"another port", "CONNECT good.test:" + port + " HTTP/1.1\r\n\r\n", "403", "hosts"},
		{"another port, plain", "GET http://good.test:" + port + "/ HTTP/1.1\r\n\r\n", "403", "hosts"},
		{"the address", "CONNECT 127.0.0.1:" + port + " HTTP/1.1\r\n\r\n", "403", "hosts"},
		{"the address in IPv6", "CONNECT [::ffff:127.0.0.1]:" + port + " HTTP/1.1\r\n\r\n", "403", "hosts"},
		{"the address in IPv6, compatible", "CONNECT [::127.0.0.1]:" + port + " HTTP/1.1\r\n\r\n", "403", "hosts"},
		{"the address as a number", "CONNECT 2130706433:" + port + " HTTP/1.1\r\n\r\n", "400", "request"},
		{"the address in octal", "CONNECT 0177.0.0.1:" + port + " HTTP/1.1\r\n\r\n", "400", "request"},
		{"the address in hex", "GET http://0x7f000001:" + port + "/ HTTP/1.1\r\n\r\n", "400", "request"},
		{"a short address", "GET http://127.1:" + port + "/ HTTP/1.1\r\n\r\n", "400", "request"},
		{"an address with a dot", "CONNECT 127.0.0.1.:" + port + " HTTP/1.1\r\n\r\n", "400", "request"},
		{"a zone", "CONNECT [fe80::1%25lo]:" + port + " HTTP/1.1\r\n\r\n", "400", "request"},
		{"unspecified", "CONNECT 0.0.0.0:" + port + " HTTP/1.1\r\n\r\n", "403", "hosts"},
		{"a name below it", "CONNECT x.good.test:443 HTTP/1.1\r\n\r\n", "403", "hosts"},
		{"a name that ends like it", "CONNECT evilgood.test:443 HTTP/1.1\r\n\r\n", "403", "hosts"},
		{"a name that begins like it", "CONNECT good.test.evil.test:443 HTTP/1.1\r\n\r\n", "403", "hosts"},
		{"the wildcard itself", "CONNECT *.wild.test:" + port + " HTTP/1.1\r\n\r\n", "400", "request"},
		{"what the wildcard is below", "CONNECT wild.test:" + port + " HTTP/1.1\r\n\r\n", "403", "hosts"},
		{"a name with a private address", "CONNECT private.test:" + port + " HTTP/1.1\r\n\r\n", "403", "private address"},
		{"a name with a private address, by the wildcard", "GET http://a.wild.test:" + port + "/ HTTP/1.1\r\n\r\n", "403", "private address"},
		{"a user before it", "GET http://good.test@evil.test/ HTTP/1.1\r\n\r\n", "400", "request"},
		{"a user before it, tunnel", "CONNECT good.test:80@evil.test:443 HTTP/1.1\r\n\r\n", "400", "request"},
		{"a backslash", "GET http://good.test\\@evil.test/ HTTP/1.1\r\n\r\n", "400", "request"},
		{"the Host field", "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n", "400", "request"},
		{"a URL in a tunnel", "CONNECT http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", "400", "request"},
		{"no port in a tunnel", "CONNECT good.test HTTP/1.1\r\n\r\n", "400", "request"},
		{"a name of a port", "CONNECT good.test:https HTTP/1.1\r\n\r\n", "400", "request"},
		{"https without a tunnel", "GET https://good.test/ HTTP/1.1\r\n\r\n", "400", "request"},
		{"another scheme", "GET ftp://good.test/ HTTP/1.1\r\n\r\n", "400", "request"},
		{"a line break in the host", "CONNECT good.test\r\nHost: evil.test:443 HTTP/1.1\r\n\r\n", "400", "request"},
		{"an encoded line break", "GET http://good.test%0d%0aevil.test/ HTTP/1.1\r\n\r\n", "400", "request"},
		{"a zero byte", "CONNECT evil.test\x00.good.test:443 HTTP/1.1\r\n\r\n", "400", "request"},
		{"letters of another script", "CONNECT g\u043eod.test:443 HTTP/1.1\r\n\r\n", "400", "request"},
		{"a dot of another script", "CONNECT good\u3002test:443 HTTP/1.1\r\n\r\n", "400", "request"},
		{"SOCKS", "\x05\x01\x00", "400", "request"},
		{"a second length", "POST http://good.test/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400", "request"},
		{"a long head", "GET http://good.test/ HTTP/1.1\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n", "431", "request"},
		{"nothing", "", "400", "request"},
	} {
		got := ask(t, address, tt.request)
		if !strings.HasPrefix(got, "HTTP/1.1 "+tt.status+" ") || !strings.Contains(got, "\r\n\r\nnestor: ") || !strings.Contains(got, "ask for it") {
			t.Errorf("%s: answered %q, want %s", tt.name, got, tt.status)
		}
	}
	close(reached)
	for what := range reached {
		t.Errorf("reached: %s", what)
	}
	for _, c := range end() {
		if c.Allowed || c.Rule == "" || c.Reason == "" || c.Sent != 0 || c.Address.IsValid() {
			t.Errorf("reported %+v", c)
		}
	}
}

// A name is resolved once for a connection, and what was looked at is connected to:
// an answer that changes in between changes nothing.
func TestRebindingDoesNotHelp(t *testing.T) {
	port := server(t, hello)
	var mu sync.Mutex
	asked := 0
	address, end := start(t, Options{
		Hosts: []string{"rebind.test:" + port},
		Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			if address != "203.0.113.1:"+port {
				t.Errorf("it connects to %s", address)
			}
			return nil, errors.New("nobody is there")
		},
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			if asked%2 == 1 {
				return []netip.Addr{netip.MustParseAddr("203.0.113.1")}, nil // of nobody
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}, nil
		},
	})
	for range 4 {
		got := ask(t, address, "GET http://rebind.test:"+port+"/ HTTP/1.1\r\n\r\n")
		if strings.Contains(got, "uri=") {
			t.Errorf("it was reached: %q", got)
		}
	}
	if asked != 4 {
		t.Errorf("asked %d times for 4 connections", asked)
	}
	allowed := 0
	for _, c := range end() {
		if c.Allowed {
			allowed++
		}
		if c.Address.IsValid() {
			t.Errorf("reported %+v", c)
		}
	}
	if allowed != 2 {
		t.Errorf("allowed %d of 4", allowed)
	}
}

// A private address may be reached if the list has it too, and those of a name that
// are not in it are not.
func TestPrivateAddressThatIsListed(t *testing.T) {
	port := server(t, hello)
	address, end := start(t, Options{
		Hosts: []string{"private.test:" + port, "127.0.0.1:" + port},
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("::ffff:127.0.0.1")}, nil
		},
	})
	if got := ask(t, address, "GET http://private.test:"+port+"/ HTTP/1.1\r\n\r\n"); !strings.Contains(got, "host=private.test") {
		t.Errorf("answered %q", got)
	}
	if list := end(); len(list) != 1 || list[0].Address.String() != "127.0.0.1:"+port {
		t.Errorf("reported %+v", list)
	}
}

func TestPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"1.1.1.1": true, "2606:4700::1111": true, "127.0.0.1": false, "10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false,
		"0.0.0.0": false, "100.64.0.1": false, "224.0.0.1": false, "255.255.255.255": false, "::": false, "::1": false, "fe80::1": false, "fc00::1": false,
		"ff02::1": false, "64:ff9b::7f00:1": false, "2002:7f00:1::": false, "::7f00:1": false, "fec0::1": false, "fe80::1%lo": false,
	} {
		if got := public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestNumberOfConnectionsIsBounded(t *testing.T) {
	address, end := start(t, Options{Most: 2})
	for range 5 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(conn, "CONNECT a.test:443 HTTP/1.1\r\n\r\n")
		io.Copy(io.Discard, conn)
		conn.Close()
	}
	list := end()
	if len(list) != 3 || !slices.ContainsFunc(list, func(c Connection) bool { return c.Rule == "number of connections" }) {
		t.Errorf("reported %+v", list)
	}
}

// A connection on which nothing moves is closed, and one that is waited for is
// served when another ends.
func TestIdleConnectionIsClosed(t *testing.T) {
	address, end := start(t, Options{Idle: 50 * time.Millisecond, Once: 1, Own: []string{"127.0.0.1:1"}})
	var conns []net.Conn
	for range 3 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it is not closed: %v", err)
		}
	}
	if list := end(); len(list) != 3 {
		t.Errorf("reported %+v", list)
	}
}

// When the proxy ends, so does what goes through it, and that is reported.
func TestEndClosesWhatIsOpen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address, end := start(t, Options{Own: []string{l.Addr().String()}})
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\n\r\nhello", l.Addr())
	remote, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	if _, err := io.ReadFull(remote, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if list := end(); len(list) != 1 || list[0].Sent != 5 || !list[0].Allowed {
		t.Errorf("reported %+v", list)
	}
	if _, err := io.ReadAll(remote); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
}

func TestDialIsBoundedAlike(t *testing.T) {
	port := server(t, hello)
	reported := make(chan Connection, 2)
	p, err := New(Options{Own: []string{"127.0.0.1:" + port}, Report: func(c Connection) { reported <- c }})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: p.Dial, DisableKeepAlives: true}
	get := func(url string) string {
		resp, err := (&http.Client{Transport: transport}).Get(url)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return string(body)
	}
	if got := get("http://127.0.0.1:" + port + "/x"); !strings.Contains(got, "uri=/x") {
		t.Error(got)
	}
	if c := <-reported; !c.Allowed || c.Sent == 0 || c.Received == 0 {
		t.Errorf("reported %+v", c)
	}
	if got := get("http://evil.test/"); !strings.Contains(got, "evil.test:80 is not among the hosts that may be reached: 127.0.0.1:"+port) {
		t.Error(got)
	}
	if c := <-reported; c.Allowed || c.Host != "evil.test" {
		t.Errorf("reported %+v", c)
	}
}

func TestNoHostIsAnError(t *testing.T) {
	if _, err := New(Options{Hosts: []string{"a.org/x"}}); err == nil || !strings.Contains(err.Error(), `"a.org/x" is no host`) {
		t.Error(err)
	}
}

// Whatever is sent, only what is in the list is connected to, and each connection is
// reported once.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"CONNECT good.test:443 HTTP/1.1\r\n\r\n", "GET http://good.test/ HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://evil.test/ HTTP/1.1\r\n\r\n", "CONNECT good.test:443@evil.test:1 HTTP/1.1\r\n\r\n",
		"POST http://good.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "GET http://user@good.test/ HTTP/1.0\r\n\r\n", "\x05\x01\x00", "CONNECT [::1]:80 HTTP/1.1\r\n\r\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return
		}
		e, err := target(req)
		if err != nil {
			return
		}
		p, err := New(Options{Hosts: []string{"good.test"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.allowed(e); err == nil && (e.Name != "good.test" || e.Port != 80 && e.Port != 443) {
			t.Fatalf("%q reaches %v", text, e)
		}
		if strings.ContainsAny(e.String(), " \r\n\t\x00/@\\%*") {
			t.Fatalf("%q reaches %q", text, e)
		}
	})
}
