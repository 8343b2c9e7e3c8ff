package permission

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func endpoint(t testing.TB, host, port string) Endpoint {
	t.Helper()
	e, err := ParseEndpoint(host, port)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestHostHolds(t *testing.T) {
	for _, tt := range []struct {
		host, name, port string
		want             bool
	}{
		{"api.example.com", "api.example.com", "443", true},
		{"api.example.com", "API.Example.COM.", "80", true},
		{"api.example.com", "api.example.com", "8443", false},
		{"api.example.com", "x.api.example.com", "443", false},
		{"api.example.com", "api.example.com.evil.org", "443", false},
		{"API.example.com.", "api.example.com", "443", true},
		{"*.example.com", "a.example.com", "443", true},
		{"*.example.com", "a.b.example.com", "443", true},
		{"*.example.com", "example.com", "443", false},
		{"*.example.com", "badexample.com", "443", false},
		{"*.example.com:8443", "a.example.com", "8443", true},
		{"*.example.com:8443", "a.example.com", "443", false},
		{"10.0.0.5", "10.0.0.5", "80", true},
		{"10.0.0.5", "::ffff:10.0.0.5", "80", true},
		{"::ffff:10.0.0.5", "10.0.0.5", "80", true},
		{"10.0.0.5:8080", "10.0.0.5", "80", false},
		{"::1", "::1", "443", true},
		{"[::1]:8080", "0:0:0:0:0:0:0:1", "8080", true},
		{"[::1]:8080", "127.0.0.1", "8080", false},
		{"localhost:8080", "localhost", "8080", true},
		{"localhost:8080", "127.0.0.1", "8080", false},
	} {
		h, err := ParseHost(tt.host)
		if err != nil {
			t.Fatal(err)
		}
		if got := h.Holds(endpoint(t, tt.name, tt.port)); got != tt.want {
			t.Errorf("%s holds %s:%s: %v", tt.host, tt.name, tt.port, got)
		}
	}
	if (Host{}).Holds(Endpoint{}) {
		t.Error("the zero host holds the zero endpoint")
	}
}

// What may be read in two ways is neither a host of a list nor one to be reached.
func TestHostsThatAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "*", "*.", ".", "a..b", "-a.org", "a-.org", "*.1.2.3.4", "*.::1", "https://a.org", "a.org/x", "a.org:0", "a.org:65536", "a.org:", "a.org:x", "a.org:080",
		"[::1", "[::1]x", "[a.org]:80", "fe80::1%eth0", "bücher.de", "a b.org", "a.org\r\nX: y", "a\x00b", "2130706433", "127.1", "0x7f.1", "0x7f000001", "0177.0.0.1", "127.0.0.1.",
		"1.2.3.4.5", "a.0x1", strings.Repeat("a", 64) + ".org", strings.Repeat("a.", 127) + "org", "user@a.org", "a.*.org", "**.a.org",
	} {
		if h, err := ParseHost(text); err == nil {
			t.Errorf("%q is taken for %v", text, h)
		} else if !strings.Contains(err.Error(), "write example.com") {
			t.Errorf("no way out in: %v", err)
		}
		host, _, _ := splitPort(text)
		if e, err := ParseEndpoint(host, "80"); err == nil && host == text {
			t.Errorf("%q can be reached as %v", text, e)
		}
	}
}

func drawHosts(t *rapid.T, label string) []string {
	return orNil(t, label, some(t, label,
		"a.org", "A.ORG:80", "*.a.org", "b.a.org:443", "*.a.org:443", "*.b.a.org", "c.b.a.org", "a.org:8443", "*.a.org:8443", "c.net", "10.0.0.1", "10.0.0.1:80", "::1", "[::1]:80", "no host", "1.2"))
}

func drawEndpoint(t *rapid.T) Endpoint {
	host := rapid.SampledFrom([]string{"a.org", "b.a.org", "c.b.a.org", "x.c.b.a.org", "c.net", "10.0.0.1", "::1", "::ffff:10.0.0.1"}).Draw(t, "host")
	e, err := ParseEndpoint(host, rapid.SampledFrom([]string{"80", "443", "8443"}).Draw(t, "port"))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func reaches(list []string, e Endpoint) bool {
	return list == nil || slices.ContainsFunc(parseHosts(list), func(h Host) bool { return h.Holds(e) })
}

// What two lists mean both is what each of them means, and no more; the order and
// how often they are met do not matter.
func TestMeetOfHosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawHosts(t, "a"), drawHosts(t, "b"), drawHosts(t, "c")
		m := MeetHosts(a, b)
		for range 10 {
			e := drawEndpoint(t)
			if got, want := reaches(m, e), reaches(a, e) && reaches(b, e); got != want {
				t.Fatalf("%v of %q and %q, which is %q: %v", e, a, b, m, got)
			}
		}
		if other := MeetHosts(b, a); !slices.Equal(m, other) || (m == nil) != (other == nil) {
			t.Fatalf("%q and %q: %q, and %q the other way", a, b, m, other)
		}
		if again := MeetHosts(m, b); !slices.Equal(m, again) {
			t.Fatalf("%q, then again with %q: %q", m, b, again)
		}
		if x, y := MeetHosts(m, c), MeetHosts(a, MeetHosts(b, c)); !slices.Equal(x, y) {
			t.Fatalf("%q, %q, %q: %q or %q", a, b, c, x, y)
		}
	})
}

// What is read as a host is written so that it is read as the same again.
func FuzzParseHost(f *testing.F) {
	for _, seed := range []string{"a.org", "*.a.org:8443", "[::1]:80", "::ffff:1.2.3.4", "10.0.0.1:1", "A.ORG.", "1.2", "x:y", "[::1%25x]:80"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ParseHost(text)
		if err != nil {
			return
		}
		again, err := ParseHost(h.String())
		if err != nil || again != h {
			t.Fatalf("%q is %v, and that is %v, %v", text, h, again, err)
		}
		if strings.ContainsAny(h.String(), "/@ \r\n\x00%") {
			t.Fatalf("%q is %q", text, h)
		}
		host, _, _ := splitPort(strings.TrimPrefix(text, "*."))
		e, err := ParseEndpoint(host, "443")
		if err != nil {
			t.Fatalf("%q is a host, but cannot be reached: %v", text, err)
		}
		if h.port == 0 && !h.below && !h.Holds(e) {
			t.Fatalf("%v does not hold itself as %v", h, e)
		}
	})
}
