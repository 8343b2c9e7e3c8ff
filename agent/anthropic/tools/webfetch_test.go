package tools

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// site serves pages at two hosts of this machine.
func site(t *testing.T, routes map[string]http.HandlerFunc) (base, host string) {
	t.Helper()
	mux := http.NewServeMux()
	for path, handle := range routes {
		mux.HandleFunc(path, handle)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return server.URL, u.Host
}

func page(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		fmt.Fprint(w, body)
	}
}

func everybody(string) bool { return true }

func TestWebFetch(t *testing.T) {
	var base string
	base, host := site(t, map[string]http.HandlerFunc{
		"/html":  page("text/html; charset=utf-8", "<title>T</title><script>evil()</script><h1>Head &amp; shoulders</h1><p>one <b>two</b></p><ul><li>a<li>b</ul>"),
		"/text":  page("text/plain", "plain <text>"),
		"/json":  page("application/json", `{"a":1}`),
		"/bin":   page("application/octet-stream", "\x00\x01"),
		"/empty": page("text/html", ""),
		"/long":  page("text/plain", strings.Repeat("0123456789\n", 1000)),
		"/here":  func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/text", http.StatusFound) },
		"/there": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere.example/x", http.StatusMovedPermanently)
		},
		"/file": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		},
		"/loop": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) },
		"/gone": func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusGone) },
	})
	s := newSet(t, Options{AllowHost: func(h string) bool { return h != "denied.example" }, PrivateHosts: []string{host}, MaxResult: 3000})
	get := func(path string) in { return in{"url": base + path, "prompt": "what is it"} }
	equal(t, "html", must(t, s, "WebFetch", get("/html")), "Asked for: what is it\n\nT\n\n# Head & shoulders\n\none two\n\n- a\n- b")
	equal(t, "text", must(t, s, "WebFetch", get("/text")), "Asked for: what is it\n\nplain <text>")
	equal(t, "json", must(t, s, "WebFetch", get("/json")), "Asked for: what is it\n\n{\"a\":1}")
	equal(t, "empty", must(t, s, "WebFetch", get("/empty")), "Asked for: what is it\n\n(The page has no text.)")
	equal(t, "same host", must(t, s, "WebFetch", get("/here")), "Asked for: what is it\n\nplain <text>")
	moved := must(t, s, "WebFetch", get("/there"))
	contains(t, "other host", moved, "REDIRECT DETECTED: The URL redirects to a different host.")
	contains(t, "other host", moved, "Redirect URL: http://elsewhere.example/x\nStatus: 301 Moved Permanently")
	contains(t, "file", refused(t, s, "WebFetch", get("/file")), "Invalid URL: file:///etc/passwd")
	contains(t, "loop", refused(t, s, "WebFetch", get("/loop")), "redirected 10 times")
	equal(t, "gone", refused(t, s, "WebFetch", get("/gone")), "Request failed with status code 410")
	contains(t, "binary", refused(t, s, "WebFetch", get("/bin")), "The page is no text: its type is application/octet-stream")

	// A long page is read in parts.
	text, offset := "", 0
	for i := 0; offset >= 0; i++ {
		if i > 20 {
			t.Fatal("there is no end")
		}
		got := must(t, s, "WebFetch", in{"url": base + "/long", "prompt": "p", "offset": offset})
		if len(got) > 3000 {
			t.Errorf("%d bytes", len(got))
		}
		body, note, more := strings.Cut(strings.TrimPrefix(got, "Asked for: p\n\n"), "\n\n[The text of the page has 11000 bytes")
		text += body
		offset = -1
		if more {
			_, note, _ = strings.Cut(note, "offset: ")
			fmt.Sscan(note, &offset)
		}
	}
	equal(t, "long", text, strings.Repeat("0123456789\n", 1000))

	for address, want := range map[string]string{
		"notaurl": "Invalid URL", "file:///etc/passwd": "Invalid URL", "ftp://x.example/": "neither http nor https",
		"http://user:pw@x.example/": "a user name or password", "http://": "Invalid URL", "http://denied.example/": "is not one that this agent may reach",
		"http://x.example/" + strings.Repeat("x", 3000): "2000 are the most", "http://[::1": "Invalid URL",
	} {
		contains(t, address, refused(t, s, "WebFetch", in{"url": address, "prompt": "p"}), want)
	}
	access, err := tool(t, s, "WebFetch").Access([]byte(`{"url":"https://Example.COM.:8443/x","prompt":"p"}`))
	if err != nil || access.Host != "example.com" {
		t.Errorf("%+v, %v", access, err)
	}
	for _, tool := range newSet(t, Options{}).Tools() {
		if tool.Name == "WebFetch" {
			t.Error("it is offered where no host is granted")
		}
	}
}

func TestWebFetchStaysOutOfPrivateNetworks(t *testing.T) {
	base, host := site(t, map[string]http.HandlerFunc{"/": page("text/plain", secret)})
	s := newSet(t, Options{AllowHost: everybody, PrivateHosts: []string{"other.example"}})
	_, port, _ := strings.Cut(host, ":")
	for _, address := range []string{base, "http://localhost:" + port, "http://[::ffff:127.0.0.1]:" + port, "http://0.0.0.0:" + port, "http://[::]:" + port} {
		contains(t, address, refused(t, s, "WebFetch", in{"url": address, "prompt": "p"}), "is a private address, which this agent may not reach")
	}
	for address, public := range map[string]bool{
		"8.8.8.8:80": true, "[2606:4700::1111]:443": true, "10.1.2.3:80": false, "192.168.0.1:80": false, "172.16.0.1:80": false,
		"169.254.169.254:80": false, "100.64.0.1:80": false, "[fe80::1%25eth0]:80": false, "[fc00::1]:80": false, "[::ffff:10.0.0.1]:80": false,
		"[64:ff9b::a00:1]:80": false, "224.0.0.1:80": false, "255.255.255.255:80": false, "[2002:a00:1::]:80": false, "nonsense": false,
	} {
		if err := checkPublic(address); (err == nil) != public {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestWebFetchAsks(t *testing.T) {
	base, host := site(t, map[string]http.HandlerFunc{"/": page("text/html", "<p>the answer is 42"), "/hang": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }})
	s := newSet(t, Options{AllowHost: everybody, PrivateHosts: []string{host}, Ask: func(_ context.Context, prompt, page string) (string, error) {
		if prompt == "fail" {
			return "", errors.New("no model")
		}
		return prompt + "? " + page, nil
	}})
	equal(t, "asked", must(t, s, "WebFetch", in{"url": base, "prompt": "what"}), "what? the answer is 42")
	contains(t, "failed", refused(t, s, "WebFetch", in{"url": base, "prompt": "fail"}), "no model")
	cause := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(cause)
	if _, err := runWith(ctx, t, s, "WebFetch", in{"url": base + "/hang", "prompt": "p"}); !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}

func TestHTMLText(t *testing.T) {
	for page, want := range map[string]string{
		"":                                "",
		"a < b & c &lt; d":                "a < b & c < d",
		"<p>one\n  two</p>\n<p>three":     "one two\n\nthree",
		"<!-- hidden --><!DOCTYPE html>x": "x",
		"<style>p{}</style><SCRIPT>'</p>'</SCRIPT >x":        "x",
		"<script>never ends":                                 "",
		"<a href='https://x.example/?a=1&amp;b=2'>link</a>.": "link (https://x.example/?a=1&b=2).",
		"<a href=javascript:evil()>link</a>":                 "link",
		"<a title=\"a > b\" href=/x>link</a>":                "link (/x)",
		"<pre>a\n  b</pre>c":                                 "```\na\n  b\n```\n\nc",
		"use <code>x</code> or <code>y</code>":               "use `x` or `y`",
		"<table><tr><td>1<td>2<tr><td>3</table>":             "| 1 | 2\n| 3",
		"<img alt='a cat'>":                                  "[image: a cat]",
		"a<br>b<br/>c":                                       "a\nb\nc",
		"<p <p <p>x":                                         "x",
	} {
		equal(t, page, htmlText(page), want)
	}
}
