package sandbox

import (
	"slices"
	"strings"
)

// What programs on macOS need besides files: these devices, and these services of
// the system. Those that start other programs, or type for the user, are not among
// them.
var (
	seatbeltDevices  = []string{"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/dtracehelper"}
	seatbeltServices = []string{
		"com.apple.bsd.dirhelper", "com.apple.cfprefsd.agent", "com.apple.cfprefsd.daemon", "com.apple.diagnosticd", "com.apple.FSEvents", "com.apple.logd",
		"com.apple.SecurityServer", "com.apple.securityd.xpc", "com.apple.system.logger", "com.apple.system.notification_center",
		"com.apple.system.opendirectoryd.libinfo", "com.apple.system.opendirectoryd.membership", "com.apple.SystemConfiguration.configd",
		"com.apple.SystemConfiguration.DNSConfiguration", "com.apple.trustd", "com.apple.trustd.agent",
	}
	// resolver is the socket where names are resolved.
	resolver = "/private/var/run/mDNSResponder"
)

// seatbelt returns the profile in the language of macOS's sandbox-exec. What is
// said last wins there. It was written from what is known of that language and has
// not been run.
func seatbelt(p Profile, system []string) string {
	var b strings.Builder
	say := func(lines ...string) {
		for _, line := range lines {
			b.WriteString("(" + line + ")\n")
		}
	}
	each := func(action, filter string, values []string) {
		for _, value := range values {
			say(action + " (" + filter + " " + quoted(value) + ")")
		}
	}
	say("version 1", "deny default", "allow process-fork", "allow signal process-info* (target same-sandbox)", "allow sysctl-read",
		"allow ipc-posix-sem", `allow ipc-posix-shm-read-data (ipc-posix-name "apple.shm.notification_center")`)
	each("allow mach-lookup", "global-name", seatbeltServices)
	say("allow file-read-metadata", `allow file-read-data (literal "/")`)
	each("allow file-read* file-write-data file-ioctl", "literal", seatbeltDevices)
	each("allow file-read* process-exec", "subpath", slices.Concat(system, p.Read))
	each("allow file-read* file-write* process-exec", "subpath", p.Write)
	for _, path := range p.Read {
		if slices.ContainsFunc(p.Write, func(dir string) bool { return strings.HasPrefix(path, dir+"/") }) {
			each("deny file-write*", "subpath", []string{path})
		}
	}
	// A path inside of what is hidden may be granted again, and is found by way of it.
	each("deny file-read-data file-read-xattr file-write* process-exec", "subpath", p.Hide)
	for _, path := range p.Hide {
		inside := func(list []string) (found []string) {
			for _, other := range list {
				if strings.HasPrefix(other, path+"/") {
					found = append(found, other)
				}
			}
			return found
		}
		each("allow file-read* process-exec", "subpath", inside(p.Read))
		each("allow file-read* file-write* process-exec", "subpath", inside(p.Write))
	}
	seatbeltNetwork(p, say)
	return b.String()
}

// seatbeltNetwork says what is left of the network. Sockets that are files are those
// of files that may be used, at every level.
func seatbeltNetwork(p Profile, say func(...string)) {
	say("allow system-socket (socket-domain AF_UNIX)")
	switch {
	case p.Level != Strict || p.Network == All:
		say("allow system-socket", `allow network* (local ip "*:*")`, `allow network-outbound (remote ip "*:*")`)
	case p.Network == Web:
		say("allow system-socket (socket-domain AF_INET)", "allow system-socket (socket-domain AF_INET6)", `allow network-outbound (remote tcp "*:*")`)
	}
	if p.Level != Strict || p.Network == All || p.Network == Web {
		say("allow network-outbound (remote unix-socket (path-literal " + quoted(resolver) + "))")
	}
	for _, path := range slices.Concat(p.Read, p.Write) {
		say("allow network-outbound (remote unix-socket (subpath " + quoted(path) + "))")
	}
	for _, path := range p.Write {
		say("allow network-bind network-inbound (local unix-socket (subpath " + quoted(path) + "))")
	}
	for _, path := range p.Hide {
		say("deny network-outbound (remote unix-socket (subpath " + quoted(path) + "))")
	}
	for _, path := range slices.Concat(p.Read, p.Write) {
		if slices.ContainsFunc(p.Hide, func(dir string) bool { return strings.HasPrefix(path, dir+"/") }) {
			say("allow network-outbound (remote unix-socket (subpath " + quoted(path) + "))")
		}
	}
}

// quoted returns text as a string of that language.
func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}
