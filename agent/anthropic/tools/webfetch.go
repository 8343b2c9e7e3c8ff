package tools

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

const (
	maxPage      = 10 << 20 // bytes of a page that are read
	maxAsk       = 100_000  // bytes of its text that are asked about
	maxURL       = 2_000
	maxRedirects = 10
	fetchTime    = time.Minute
)

type fetchInput struct {
	URL    string `json:"url"`
	Prompt string `json:"prompt"`
	Offset count  `json:"offset"`
}

func (s *Set) webFetchTool() Tool {
	t := Tool{
		Name: "WebFetch",
		Description: "Fetches a page from the web and shows its text, or what the prompt asks about it. A page that has moved to " +
			"another host is not followed there: fetch the new address yourself.",
		Schema: json.RawMessage(`{"type":"object","properties":{
"url":{"type":"string","format":"uri","description":"The URL to fetch content from"},
"prompt":{"type":"string","description":"What you want to know from the page"},
"offset":{"type":"integer","minimum":0,"description":"Where in the text to start, to read on through a long page"}
},"required":["url","prompt"],"additionalProperties":false}`),
		ReadOnly: true,
	}
	t.Access = func(input json.RawMessage) (Access, error) {
		in, err := decode[fetchInput](t, input)
		if err != nil {
			return Access{}, err
		}
		target, err := parseTarget(in.URL)
		if err != nil {
			return Access{}, err
		}
		return Access{Host: hostOf(target)}, nil
	}
	t.Run = func(ctx context.Context, input json.RawMessage) (Result, error) {
		in, err := decode[fetchInput](t, input)
		if err != nil {
			return Result{}, err
		}
		return s.fetch(ctx, in)
	}
	return t
}

func parseTarget(raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, tell("Invalid URL: it has %d bytes, and %d are the most", len(raw), maxURL)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, tell("Invalid URL: %s", raw)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, tell("Invalid URL: %s is neither http nor https", raw)
	case u.User != nil:
		return nil, tell("Invalid URL: it holds a user name or password")
	}
	return u, nil
}

// hostOf returns the host without its port, in lower case and without the dot
// that may end it.
func hostOf(u *url.URL) string { return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") }

// movedError ends a request that was redirected to where it may not go.
type movedError struct {
	from, to *url.URL
	code     int
}

func (e *movedError) Error() string { return "redirected to " + e.to.String() }

func (s *Set) fetch(ctx context.Context, in fetchInput) (Result, error) {
	target, err := parseTarget(in.URL)
	if err != nil {
		return Result{}, err
	}
	if host := hostOf(target); !s.opts.AllowHost(host) {
		return Result{}, tell("The host %s is not one that this agent may reach.", host)
	}
	ctx, stop := context.WithTimeoutCause(ctx, fetchTime, fmt.Errorf("fetching %s took more than %s", in.URL, fetchTime))
	defer stop()
	client := s.client()
	if s.opts.Client == nil {
		defer client.CloseIdleConnections()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return Result{}, err
	}
	req.Header.Set("Accept", "text/markdown, text/html, text/plain, application/json, */*")
	req.Header.Set("User-Agent", "nestor")
	resp, err := client.Do(req)
	if moved, ok := errors.AsType[*movedError](err); ok {
		return Result{Text: moved.text(in.Prompt)}, nil
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return Result{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return Result{}, err
	}
	if resp.StatusCode >= 400 {
		return Result{}, tell("Request failed with status code %d", resp.StatusCode)
	}
	page, err := pageText(resp.Header.Get("Content-Type"), body)
	if err != nil {
		return Result{}, err
	}
	return s.answer(ctx, in, page, resp)
}

// answer tells what the page says, from the offset on.
func (s *Set) answer(ctx context.Context, in fetchInput, page string, resp *http.Response) (Result, error) {
	data := map[string]any{"url": in.URL, "code": resp.StatusCode, "codeText": http.StatusText(resp.StatusCode), "bytes": len(page)}
	start := min(max(0, int(in.Offset)), len(page))
	for start < len(page) && !utf8.RuneStart(page[start]) {
		start++
	}
	most := s.opts.MaxResult - 300 - min(len(in.Prompt), 200)
	if s.opts.Ask != nil {
		most = maxAsk
	}
	part := cutEnd(page[start:], most)
	more := ""
	if end := start + len(part); end < len(page) {
		more = fmt.Sprintf("\n\n[The text of the page has %d bytes; these are %d to %d. Read on with offset: %d.]", len(page), start, end, end)
	}
	if s.opts.Ask != nil {
		text, err := s.opts.Ask(ctx, in.Prompt, part)
		if err != nil {
			return Result{}, fmt.Errorf("asking about %s: %w", clip(in.URL, 200), err)
		}
		text, err = s.Bound("webfetch", text+more)
		return Result{Text: text, Data: data}, err
	}
	if part == "" {
		part = "(The page has no text.)"
	}
	return Result{Text: fmt.Sprintf("Asked for: %s\n\n%s%s", clip(in.Prompt, 200), part, more), Data: data}, nil
}

func (e *movedError) text(prompt string) string {
	return fmt.Sprintf("REDIRECT DETECTED: The URL redirects to a different host.\n\nOriginal URL: %s\nRedirect URL: %s\nStatus: %d %s\n\n"+
		"To complete your request, I need to fetch content from the redirected URL. Please use WebFetch again with these parameters:\n"+
		"- url: %q\n- prompt: %q", e.from, e.to, e.code, http.StatusText(e.code), e.to, clip(prompt, 500))
}

// client returns the client for one fetch. It follows redirects on the same
// host alone.
func (s *Set) client() *http.Client {
	var c http.Client
	if s.opts.Client != nil {
		c = *s.opts.Client
	} else {
		c.Transport = s.guarded()
	}
	c.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) >= maxRedirects {
			return fmt.Errorf("redirected %d times", len(via))
		}
		if _, err := parseTarget(req.URL.String()); err != nil {
			return err
		}
		last := via[len(via)-1]
		bare := func(u *url.URL) string { return strings.TrimPrefix(hostOf(u), "www.") }
		if bare(req.URL) != bare(last.URL) || !s.opts.AllowHost(hostOf(req.URL)) || last.URL.Scheme == "https" && req.URL.Scheme == "http" {
			return &movedError{last.URL, req.URL, req.Response.StatusCode}
		}
		return nil
	}
	return &c
}

// guarded returns a transport that connects to no private address, unless the
// host is one that may have one. The address is looked at when it is connected
// to, so that no answer of a name server can come between.
func (s *Set) guarded() *http.Transport {
	if s.opts.Dial != nil {
		return &http.Transport{ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 1 << 20, DialContext: s.opts.Dial}
	}
	return &http.Transport{
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 1 << 20,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			d := net.Dialer{Timeout: 20 * time.Second}
			if !s.mayBePrivate(addr) {
				d.Control = func(_, address string, _ syscall.RawConn) error { return checkPublic(address) }
			}
			return d.DialContext(ctx, network, addr)
		},
	}
}

func (s *Set) mayBePrivate(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && slices.ContainsFunc(s.opts.PrivateHosts, func(h string) bool {
		h = strings.ToLower(h)
		return h == strings.ToLower(host) || h == strings.ToLower(addr)
	})
}

// special are addresses that package netip calls global and that are not.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("2001::/32"),
}

// checkPublic refuses addresses of this machine and of networks around it.
func checkPublic(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := ap.Addr().Unmap()
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(ip.WithZone("")) }) {
		return fmt.Errorf("%s is a private address, which this agent may not reach", ip)
	}
	return nil
}

// pageText returns the text of a page of that type.
func pageText(contentType string, body []byte) (string, error) {
	media, _, err := mime.ParseMediaType(cmp.Or(contentType, http.DetectContentType(body)))
	if err != nil {
		media, _, _ = strings.Cut(contentType, ";")
	}
	text := strings.ToValidUTF8(string(body), "\uFFFD")
	switch {
	case media == "text/html" || media == "application/xhtml+xml":
		return htmlText(text), nil
	case strings.HasPrefix(media, "text/"), strings.HasSuffix(media, "json"), strings.HasSuffix(media, "xml"),
		strings.HasSuffix(media, "javascript"), strings.HasSuffix(media, "yaml"):
		if bytes.IndexByte(body, 0) < 0 {
			return text, nil
		}
	}
	return "", tell("The page is no text: its type is %s, and it has %s.", clip(cmp.Or(media, "unknown"), 100), sizeText(int64(len(body))))
}
