package permission

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Endpoint is a host and a port that somebody wants to reach. Of all ways to
// write a host it has one: a name in lower case without a dot at its end, or an
// address.
type Endpoint struct {
	Name string     // empty if the host is an address
	Addr netip.Addr // not valid if it is a name; never IPv4 written as IPv6
	Port uint16
}

// ParseEndpoint reads a host, without brackets, and a port. It fails for what one
// program takes for a name and another for an address, such as 2130706433.
func ParseEndpoint(host, port string) (Endpoint, error) {
	n, err := parsePort(port)
	if err != nil {
		return Endpoint{}, err
	}
	e := Endpoint{Port: n}
	e.Name, e.Addr, err = parseName(host)
	return e, err
}

// Host returns the host alone.
func (e Endpoint) Host() string {
	if e.Addr.IsValid() {
		return e.Addr.String()
	}
	return e.Name
}

func (e Endpoint) String() string {
	if e.Addr.IsValid() {
		return netip.AddrPortFrom(e.Addr, e.Port).String()
	}
	return e.Name + ":" + strconv.Itoa(int(e.Port))
}

// Host says which hosts may be reached, at which ports. The zero value is none.
type Host struct {
	name  string     // or what all names below it end with
	below bool       // name itself is not meant
	addr  netip.Addr // instead of a name
	port  uint16     // zero means webPorts
}

// webPorts are those of a Host that names none.
var webPorts = []uint16{80, 443}

// ParseHost reads example.com, *.example.com for all below it, or an address, with
// a port as in example.com:8443 and [::1]:8080. Without a port it means 80 and 443.
func ParseHost(text string) (Host, error) {
	bad := func(err error) (Host, error) {
		return Host{}, fmt.Errorf("%q is no host that can be allowed: %w; write example.com, *.example.com for those below it, or an address, and a port behind a colon if it is neither 80 nor 443", clip(text), err)
	}
	if strings.Contains(text, "/") {
		return bad(errors.New("it has a slash"))
	}
	var h Host
	var err error
	name, port, hasPort := splitPort(text)
	if hasPort {
		if h.port, err = parsePort(port); err != nil {
			return bad(err)
		}
	}
	if name == "*" {
		return bad(errors.New("it would be all; leave the list out for that"))
	}
	rest, below := strings.CutPrefix(name, "*.")
	if h.name, h.addr, err = parseName(rest); err != nil {
		return bad(err)
	}
	if below && h.addr.IsValid() {
		return bad(errors.New("nothing is below an address"))
	}
	h.below = below
	return h, nil
}

// splitPort splits what may be behind the last colon from a host, which may be an
// address with colons, and takes its brackets off.
func splitPort(text string) (host, port string, found bool) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		if host, rest, closed := strings.Cut(inner, "]"); closed && strings.Contains(host, ":") {
			if rest == "" {
				return host, "", false
			}
			if port, ok := strings.CutPrefix(rest, ":"); ok {
				return host, port, true
			}
		}
		return text, "", false // which is no name
	}
	if strings.Count(text, ":") != 1 {
		return text, "", false
	}
	host, port, _ = strings.Cut(text, ":")
	return host, port, true
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
		return 0, fmt.Errorf("%q is no port from 1 to 65535", clip(text))
	}
	return uint16(n), nil
}

// parseName reads a host in any case, with or without a dot at its end.
func parseName(text string) (string, netip.Addr, error) {
	var none netip.Addr
	if addr, err := netip.ParseAddr(text); err == nil {
		if addr.Zone() != "" {
			return "", none, fmt.Errorf("%q has a zone", clip(text))
		}
		return "", addr.Unmap(), nil
	}
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	if name == "" || len(name) > 253 {
		return "", none, fmt.Errorf("%q is no name of a host", clip(text))
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		switch {
		case strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
			return "", none, fmt.Errorf("%q has letters that no name of a host has; those of other scripts are written as xn--…", clip(text))
		case label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-':
			return "", none, fmt.Errorf("%q is no name of a host", clip(text))
		}
	}
	if number(labels[len(labels)-1]) {
		return "", none, fmt.Errorf("%q may be taken for an address; write it as four numbers with dots", clip(text))
	}
	return name, none, nil
}

// number tells whether somebody may take the last part of a name for a number, and
// the name for an address.
func number(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func (h Host) String() string {
	text := h.name
	switch {
	case h.addr.Is6() && h.port != 0:
		text = "[" + h.addr.String() + "]"
	case h.addr.IsValid():
		text = h.addr.String()
	case h.below:
		text = "*." + text
	}
	if h.port != 0 {
		text += ":" + strconv.Itoa(int(h.port))
	}
	return text
}

// Holds tells whether an endpoint is among those that h means.
func (h Host) Holds(e Endpoint) bool {
	return h.holds(Host{name: e.Name, addr: e.Addr, port: e.Port})
}

// holds tells whether h means all that another one does.
func (h Host) holds(small Host) bool { return h.holdsName(small) && h.holdsPort(small.port) }

func (h Host) holdsName(small Host) bool {
	switch {
	case h.addr.IsValid() || small.addr.IsValid():
		return h.addr == small.addr
	case h.name == "" || small.name == "":
		return false
	case h.below:
		return h.name == small.name && small.below || strings.HasSuffix(small.name, "."+h.name)
	}
	return h.name == small.name && !small.below
}

func (h Host) holdsPort(port uint16) bool {
	return h.port == port || h.port == 0 && slices.Contains(webPorts, port)
}

// both returns what two hosts mean both; ok is false if that is nothing.
func (h Host) both(other Host) (b Host, ok bool) {
	switch {
	case h.holdsName(other):
		b = other
	case other.holdsName(h):
		b = h
	default:
		return b, false
	}
	switch {
	case h.holdsPort(other.port):
		b.port = other.port
	case other.holdsPort(h.port):
		b.port = h.port
	default:
		return b, false
	}
	return b, true
}

// MeetHosts returns what both lists mean, in the words of [ParseHost]; nil as a
// list means everything, and what cannot be read means nothing. It does not matter
// which of them is the parent's, nor in which order several are met, nor how often.
func MeetHosts(a, b []string) []string {
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil:
		a = b
	case b == nil:
		b = a
	}
	var both []Host
	for _, x := range parseHosts(a) {
		for _, y := range parseHosts(b) {
			if h, ok := x.both(y); ok && !slices.Contains(both, h) {
				both = append(both, h)
			}
		}
	}
	list := []string{} // which is not everything
	for _, small := range both {
		if !slices.ContainsFunc(both, func(large Host) bool { return large != small && large.holds(small) }) {
			list = append(list, small.String())
		}
	}
	slices.Sort(list)
	return list
}

func parseHosts(list []string) (hosts []Host) {
	for _, text := range list {
		if h, err := ParseHost(text); err == nil {
			hosts = append(hosts, h)
		}
	}
	return hosts
}
