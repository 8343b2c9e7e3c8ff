//go:build linux

package sandbox

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dfaf701a/nestor/internal/proxy"
	"github.com/dfaf701a/nestor/internal/soak"
)

// attempt is one way out of a sandbox. It has got out if what it prints has the
// secret or the word ESCAPED in it, if anything outside has changed, or if the
// victim is dead.
type attempt struct {
	name    string
	script  string // for bash; OUT, WS, VICTIM, SELF and others are set
	strict  bool   // level files does not keep it in, nor means to
	missing string // part of what Report.Missing says where the machine cannot keep it in
	web     bool   // network web does not keep it in, nor means to
	own     bool   // with network hosts it does it in a network of its own
	private bool   // it is about what needs a root of its own
	root    bool   // without the rights of root it never gets out
	kept    string // why it does not get out without a sandbox either, or must not be tried
}

const (
	needsRootForMeta   = "owner, mode and times"
	needsRootForSocket = "sockets that are files"
	needsScope         = "sent signals"
	needsAbstract      = "abstract Unix sockets"
	needsUDP           = "UDP"
	needsMPTCP         = "multipath TCP"
	needsVsock         = "virtual machine"
)

var attempts = []attempt{
	// By a path.
	{name: "read", script: `cat $OUT/secret`},
	{name: "read by dots", script: `cat $WS/../outside/secret`},
	{name: "read by a folder that is not there", script: `cat $WS/none/../../outside/secret $WS/./../outside/secret`},
	{name: "list", script: `ls $OUT | grep -q open.txt && echo ESCAPED`},
	{name: "is it there", script: `stat $OUT/secret && echo ESCAPED`, missing: needsRootForMeta},
	{name: "append", script: `echo x >> $OUT/open.txt`},
	{name: "overwrite", script: `echo x > $OUT/open.txt`},
	{name: "make a file", script: `touch $OUT/new`},
	{name: "make a folder", script: `mkdir $OUT/new`},
	{name: "remove", script: `rm -f $OUT/open.txt`},
	{name: "remove a folder", script: `rmdir $OUT/dir`},
	{name: "truncate", script: `$SELF attack truncate $OUT/open.txt`, missing: "cut short"},
	{name: "execute a program", script: `$OUT/program ESCAPED`},
	{name: "execute a program by the loader", script: `$(ls /lib64/ld-linux-*.so.* /lib/ld-linux-*.so.* 2>/dev/null | head -1) $OUT/program ESCAPED`},
	{name: "secrets in /etc", script: `cat /etc/shadow > /dev/null && echo ESCAPED`, root: true},

	// By links and moves.
	{name: "a symbolic link", script: `ln -s $OUT/secret link && cat link`},
	{name: "a symbolic link to write by", script: `ln -s $OUT/open.txt link && echo x > link`},
	{name: "a symbolic link that was there", script: `cat before/secret`},
	{name: "a symbolic link that was there, to write by", script: `echo x > before/new`},
	{name: "a hard link", script: `ln $OUT/secret hard && cat hard`},
	{name: "a hard link of what a link is to", script: `ln -L before/secret hard && cat hard`},
	{name: "move in", script: `mv $OUT/secret stolen; cat stolen`},
	{name: "move out", script: `echo x > mine; mv mine $OUT/new`},
	{name: "exchange", script: `echo x > mine; $SELF attack exchange mine $OUT/secret; cat mine`},
	{name: "a race of links", script: `timeout 20 $SELF attack race $WS $OUT`},

	// By /proc.
	{name: "own root", script: `cat /proc/self/root$OUT/secret`},
	{name: "root of the first process", script: `cat /proc/1/root$OUT/secret`, kept: "the machine itself may refuse it"},
	{name: "own folder", script: `cat /proc/self/cwd/../outside/secret`},
	{name: "root of the keeper", script: `cat /proc/$PPID/root$OUT/secret`},
	{name: "environment of the daemon", script: `tr '\0' '\n' < /proc/$VICTIM/environ`},
	{name: "files of the daemon", script: `cat /proc/$VICTIM/fd/3`},
	{name: "folder of the daemon", script: `cat /proc/$VICTIM/cwd/secret`},
	{name: "root of the daemon", script: `cat /proc/$VICTIM/root$OUT/secret`},
	{name: "memory of the daemon", script: `$SELF attack mem $VICTIM`},
	{name: "descriptors that are left open", script: `cat /proc/self/fd/3; cat <&3; cat /dev/fd/4`},
	{name: "descriptors that are left open, by a program", script: `$SELF attack inherited`},
	{name: "core_pattern", script: `p=$(cat /proc/sys/kernel/core_pattern); echo "$p" > /proc/sys/kernel/core_pattern && echo ESCAPED`, root: true},
	{name: "a setting in /sys", script: `f=/sys/kernel/mm/transparent_hugepage/enabled; v=$(sed 's/.*\[\(.*\)\].*/\1/' $f); echo $v > $f && echo ESCAPED`, root: true},

	// By other calls.
	{name: "open by handle", script: `$SELF attack handle $WS $HANDLE`, root: true},
	{name: "io_uring", script: `$SELF attack uring $OUT/secret`},
	{name: "a program in memory", script: `$SELF attack memfd $OUT/secret`},
	{name: "ptrace", script: `$SELF attack ptrace $VICTIM`},
	{name: "process_vm_readv", script: `$SELF attack readv $VICTIM $ADDRESS`},
	{name: "pidfd_getfd", script: `$SELF attack getfd $VICTIM`},
	{name: "a signal", script: `kill -TERM $VICTIM`, missing: needsScope},
	{name: "a signal to its group", script: `kill -TERM -- -$VICTIM`, missing: needsScope},
	{name: "a signal by a thread", script: `$SELF attack tkill $VICTIM`, missing: needsScope},
	{name: "mode", script: `chmod 777 $OUT/secret`, missing: needsRootForMeta},
	{name: "owner", script: `chown 12345 $OUT/secret`, missing: needsRootForMeta, root: true},
	{name: "times", script: `touch -c -d 2001-01-01 $OUT/secret`, missing: needsRootForMeta},
	{name: "attributes", script: `$SELF attack xattr $OUT/open.txt`, missing: needsRootForMeta},
	{name: "name of the machine", script: `hostname "$(hostname)" && echo ESCAPED`, root: true},
	{name: "new rights by programs", script: `grep -q 'NoNewPrivs:.0' /proc/self/status && echo ESCAPED`},
	{name: "rights of root", script: `[ $((0x$(awk '/CapEff/ {print $2}' /proc/self/status) & ~0x1b)) -ne 0 ] && echo ESCAPED`, root: true},
	{name: "rights of root in a namespace", script: `unshare -Ur sh -c 'cat $OUT/secret'`},
	{name: "a sandbox of its own", script: `$SELF nestor-sandbox-supervise 1 {} -- cat $OUT/secret`},

	// By mounts and roots.
	{name: "mount", script: `mkdir m; mount --bind $OUT m && cat m/secret && umount -l m`, root: true},
	{name: "mount in a namespace", script: `mkdir m; unshare -m sh -c 'mount --bind $OUT m && cat m/secret'`, root: true},
	{name: "mount in a namespace of users", script: `mkdir m; unshare -Urm sh -c 'mount --bind $OUT m && cat m/secret'`},
	{name: "mount /proc", script: `mkdir m; mount -t proc proc m && { cat m/$VICTIM/cwd/secret; umount -l m; }`, root: true},
	{name: "unmount", script: `unshare -m umount -l /proc && echo ESCAPED`, root: true},
	{name: "change the root by pivot_root", script: `mkdir m; unshare -m sh -c 'mount --bind m m && mkdir m/old && cd m && pivot_root . old && echo ESCAPED'`, root: true},
	{name: "change the root by chroot", script: `$SELF attack chroot $OUT/secret`, root: true},
	{name: "chroot through /proc", script: `chroot /proc/1/root cat $OUT/secret`, kept: "the machine itself may refuse it"},
	{name: "namespaces of the first process", script: `nsenter -t 1 -m cat $OUT/secret`, kept: "the machine itself may refuse it"},
	{name: "namespaces of the daemon", script: `nsenter -t $VICTIM -m cat $OUT/secret`, root: true},

	// By devices.
	{name: "make a disk", script: `mknod disk b $DISK && echo ESCAPED`, root: true},
	{name: "make a memory", script: `mknod memory c 1 1 && echo ESCAPED`, root: true},
	{name: "read a disk", script: `head -c 512 /dev/$DISKNAME > /dev/null && echo ESCAPED`, kept: "the machine itself may refuse it"},
	{name: "ask a disk", script: `blockdev --getsize64 /dev/$DISKNAME && echo ESCAPED`, kept: "the machine itself may refuse it"},
	{name: "read the kernel's log", script: `head -c 1 /dev/kmsg > /dev/null && echo ESCAPED; dmesg | grep -q . && echo ESCAPED`, root: true},
	{name: "other terminals", script: `: < /dev/tty1 && echo ESCAPED`, root: true},

	// By sockets.
	{name: "a socket that is a file", script: `$SELF attack dial unix $OUT/socket`, missing: needsRootForSocket},
	{name: "a socket without a file", script: `$SELF attack dial unix @$ABSTRACT`, strict: true, missing: needsAbstract},
	{name: "TCP", script: `$SELF attack dial tcp 127.0.0.1:$TCP`, strict: true, web: true},
	{name: "TCP by bash", script: `cat < /dev/tcp/127.0.0.1/$TCP`, strict: true, web: true},
	{name: "TCP without a connection first", script: `$SELF attack fastopen $TCP`, strict: true, web: true, missing: needsMPTCP},
	{name: "listen on TCP", script: `$SELF attack listen`, strict: true, own: true},
	{name: "UDP", script: `$SELF attack udp 127.0.0.1:$UDP`, strict: true, web: true, missing: needsUDP},
	{name: "multipath TCP", script: `$SELF attack mptcp $TCP`, strict: true, web: true, missing: needsMPTCP},
	{name: "TCP by IPv6", script: `$SELF attack dial tcp [::1]:$TCP6`, strict: true, web: true},
	{name: "TCP by all names of this machine", script: `for a in $(hostname -I 2>/dev/null) localhost 0.0.0.0 [::ffff:127.0.0.1]; do $SELF attack dial tcp $a:$TCP; done`, strict: true, web: true},
	{name: "the network of the daemon", script: `nsenter -t $VICTIM -n $SELF attack dial tcp 127.0.0.1:$TCP`, strict: true, web: true, root: true},
	{name: "another network", script: `unshare -Urn $SELF attack dial tcp 127.0.0.1:$TCP`, strict: true, web: true, kept: "it has none without a sandbox either"},
	{name: "the socket of the outlet", script: `$SELF attack dial unix $OUT/outlet`, strict: true, missing: needsRootForSocket},
	{name: "the machine that this one runs in", script: `$SELF attack vsock`, strict: true, web: true, missing: needsVsock, kept: "not every machine has such sockets"},
	{name: "a ring of requests to the kernel", script: `$SELF attack ring`, strict: true, web: true, missing: needsVsock, kept: "not every machine has them"},
	{name: "raw packets", script: `$SELF attack packet`, root: true},

	// By what belongs to the run.
	{name: "read what is hidden", script: `cat .nestor/token`, private: true},
	{name: "write what is hidden", script: `echo x > .nestor/new`, private: true},
	{name: "move what is hidden", script: `mv .nestor other; cat other/token`, private: true},
	{name: "write what defines it", script: `echo x > .claude/agents/me.md`, private: true},
	{name: "move what defines it", script: `mv .claude/agents/me.md x; rm -f .claude/agents/me.md; echo x > .claude/agents/me.md`, private: true},
	{name: "move the folder of what defines it", script: `mv .claude/agents .claude/old; mkdir -p .claude/agents; echo x > .claude/agents/me.md`, private: true},
	{name: "move the folder of that folder", script: `mv .claude old; mkdir -p .claude/agents; echo x > .claude/agents/me.md`, private: true},
	{name: "write through another name", script: `ln .claude/agents/me.md x && echo x > x; echo x > /proc/self/cwd/.claude/agents/me.md`, private: true},
}

// scene is what attempts are made in: a workspace, and what is outside of it.
type scene struct {
	dir, ws, out string
	secret       string
	env          []string
	victim       *exec.Cmd
	in           io.Writer // of the victim
	answers      io.Reader
	inherited    *os.File
}

func newScene(t *testing.T) *scene {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{dir: dir, ws: dir + "/ws", out: dir + "/outside", secret: "secret-" + rand.Text()}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"ws/.nestor", "ws/.claude/agents", "outside/dir"} {
		check(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	echo, err := os.ReadFile("/bin/echo")
	check(err)
	for name, f := range map[string]struct {
		text string
		mode fs.FileMode
	}{
		"outside/secret": {s.secret + "\n", 0o600}, "outside/open.txt": {"open", 0o666}, "outside/program": {string(echo), 0o755},
		"ws/.nestor/token": {s.secret, 0o600}, "ws/.claude/agents/me.md": {"me", 0o644},
	} {
		check(os.WriteFile(filepath.Join(dir, name), []byte(f.text), f.mode))
		check(os.Chmod(filepath.Join(dir, name), f.mode))
	}
	check(os.Symlink(s.out, s.ws+"/before"))
	s.inherited, err = os.Open(s.out + "/secret")
	check(err)
	t.Cleanup(func() { s.inherited.Close() })

	abstract := rand.Text()
	tcp := s.serve(t, "tcp", "127.0.0.1:0")
	tcp6 := s.serve(t, "tcp", "[::1]:0")
	s.serve(t, "unix", s.out+"/socket")
	s.serve(t, "unix", s.out+"/outlet")
	s.serve(t, "unix", "@"+abstract)
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, s.out+"/secret", 0)
	hex := "none"
	if err == nil {
		hex = fmt.Sprintf("%d:%x", handle.Type(), handle.Bytes())
	}
	name, number := disk(t)
	s.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.ws, "TMPDIR=" + s.ws, "LANG=C", "SELF=" + self(t), "OUT=" + s.out, "WS=" + s.ws, "BASH_ENV=", "GORACE=" + quickExit,
		"ABSTRACT=" + abstract, "TCP=" + port(tcp), "TCP6=" + port(tcp6), "UDP=" + port(s.serveUDP(t)), "HANDLE=" + hex, "DISK=" + number, "DISKNAME=" + name,
	}
	s.newVictim(t)
	t.Cleanup(s.endVictim)
	return s
}

// serve tells the secret to whoever connects.
func (s *scene) serve(t *testing.T, network, address string) net.Addr {
	t.Helper()
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	ln, err := config.Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}) // closed when nobody is served any more
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, s.secret)
			conn.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr()
}

func (s *scene) serveUDP(t *testing.T) net.Addr {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}) // closed when nobody is served any more
	go func() {
		defer close(done)
		buf := make([]byte, 64)
		for {
			_, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			conn.WriteTo([]byte(s.secret), from)
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return conn.LocalAddr()
}

func port(a net.Addr) string {
	_, p, _ := net.SplitHostPort(a.String())
	return p
}

// disk returns the name and the numbers of a disk, or something that is none.
func disk(t *testing.T) (name, number string) {
	t.Helper()
	text, _ := os.ReadFile("/proc/partitions")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 4 && f[0] != "major" && !strings.HasPrefix(f[3], "loop") && !strings.HasPrefix(f[3], "zram") {
			return f[3], f[0] + " " + f[1]
		}
	}
	return "none", "8 0"
}

// newVictim starts a process that has the secret everywhere: in its environment,
// memory, folder and files.
func (s *scene) newVictim(t *testing.T) {
	t.Helper()
	cmd := exec.Command("cat")
	cmd.Env, cmd.Dir = []string{"TOKEN=" + s.secret}, s.out
	cmd.ExtraFiles = []*os.File{s.inherited}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.victim, s.in, s.answers = cmd, in, out
	if !s.alive() {
		t.Fatal("the victim does not answer")
	}
	s.set("VICTIM", fmt.Sprint(cmd.Process.Pid))
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	s.set("ADDRESS", strings.Fields(string(stat))[49]) // where its environment begins
}

func (s *scene) set(name, value string) { s.env = append(s.env, name+"="+value) }

func (s *scene) endVictim() {
	s.victim.Process.Kill()
	s.victim.Wait()
}

// alive tells whether the victim was left alone: it repeats what it is told.
func (s *scene) alive() bool {
	if _, err := s.in.Write([]byte("?")); err != nil {
		return false
	}
	_, err := s.answers.Read(make([]byte, 1))
	return err == nil
}

// outside describes all that an attempt must not change.
func (s *scene) outside(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range []string{s.out, s.ws + "/.nestor", s.ws + "/.claude"} {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				fmt.Fprintln(&b, err)
				return nil
			}
			var stat unix.Stat_t
			if err := unix.Lstat(path, &stat); err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(&b, path, " ", stat.Mode, stat.Uid, stat.Gid, stat.Ino, stat.Nlink)
			if !d.IsDir() {
				text, _ := os.ReadFile(path)
				fmt.Fprint(&b, " ", stat.Mtim, stat.Size, " ", bytes.Count(text, []byte("x")), len(text))
			}
			attributes := make([]byte, 256)
			n, _ := unix.Llistxattr(path, attributes)
			fmt.Fprintln(&b, " ", n)
			return nil
		})
	}
	return b.String()
}

// try makes one attempt and returns what it printed, and how it got out, if it
// did.
func (s *scene) try(t *testing.T, a attempt, p Profile, private bool) (printed, escaped string) {
	t.Helper()
	before := s.outside(t)
	p.Write = []string{s.ws}
	if p.confined() && private {
		p.Hide, p.Read = []string{s.ws + "/.nestor"}, []string{s.ws + "/.claude/agents/me.md"}
	}
	if p.Network == Hosts {
		p.Outlet, _ = outlet(t, proxy.Options{})
	}
	cmd := command(t, p, private, s.ws, "bash", "-c", a.script)
	if !p.confined() { // not even supervised
		cmd = exec.Command("bash", "-c", a.script)
		cmd.Dir = s.ws
	}
	cmd.Env = s.env
	cmd.ExtraFiles = []*os.File{s.inherited, s.inherited}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	s.inherited.Seek(0, 0)
	cmd.Run()
	printed = strings.TrimSpace(strings.ReplaceAll(out.String(), s.dir, ""))
	switch after := s.outside(t); {
	case strings.Contains(printed, s.secret):
		escaped = "it has the secret"
	case strings.Contains(printed, "ESCAPED"):
		escaped = "it did what it must not"
	case !s.alive():
		escaped = "the victim is dead"
	case after != before:
		escaped = "it changed what is outside:\n" + before + "became\n" + after
	}
	return printed, escaped
}

// TestEscapes makes every attempt without a sandbox, where it has to get out, or
// it would prove nothing; and at every level and in every way that a machine can
// confine it, where it must not.
func TestEscapes(t *testing.T) {
	root := os.Geteuid() == 0
	t.Run("without a sandbox", func(t *testing.T) {
		for _, a := range attempts {
			t.Run(a.name, func(t *testing.T) {
				switch {
				case a.kept != "":
					t.Skip(a.kept)
				case a.root && !root:
					t.Skip("needs the rights of root")
				}
				if printed, escaped := newScene(t).try(t, a, Profile{Level: Off}, false); escaped == "" {
					t.Errorf("it does not get out even without a sandbox, and proves nothing: %s", printed)
				}
			})
		}
	})
	modes(t, func(t *testing.T, level Level, private bool) {
		if level == Off {
			t.Skip("confines nothing")
		}
		r := Check()
		if !private {
			r = Report{Landlock: r.Landlock, calls: r.calls}
		}
		networks := []Network{None}
		if level == Strict {
			networks = append(networks, Web)
			if r.Outlet {
				networks = append(networks, Hosts)
			}
		}
		for _, network := range networks {
			missing := r.Missing(level, network)
			for _, a := range soak.Draw(t, len(attempts)/3, attempts) {
				if network != None && !a.strict {
					continue // the network makes no difference to it
				}
				t.Run(string(network)+" "+a.name, func(t *testing.T) {
					switch {
					case a.strict && level == Files:
						t.Skip("level files confines no network")
					case a.web && network == Web:
						t.Skip("network web allows it")
					case a.own && network == Hosts:
						t.Skip("it does it in a network of its own")
					case a.private && !private:
						t.Skip("Wrap refuses to hide or protect a part of a folder without a root of its own")
					}
					if a.missing != "" {
						for _, m := range missing {
							if strings.Contains(m, a.missing) {
								t.Skip("reported as missing: " + m)
							}
						}
					}
					printed, escaped := newScene(t).try(t, a, Profile{Level: level, Network: network}, private)
					if escaped != "" {
						t.Errorf("it got out: %s\n%s", escaped, printed)
					}
					t.Logf("stopped by: %s", printed)
				})
			}
		}
	})
}

// What is refused outside works inside: a sandbox in which nothing works would
// pass every other test.
func TestWorkInside(t *testing.T) {
	modes(t, func(t *testing.T, level Level, private bool) {
		dir := t.TempDir()
		tools := t.TempDir()
		if err := os.WriteFile(tools+"/tool", []byte("#!/bin/sh\necho tool\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		script := `set -e
mkdir -p a/b && echo x > a/b/f && mv a/b/f g && ln g h && ln -s g i && cat i && chmod 600 g && touch -d 2001-01-01 g && truncate -s 0 g && rm -r a
mkfifo p && echo y | tee /dev/stderr > /dev/null
` + tools + `/tool
git init -q r && cd r && echo z > f && git add f && git -c user.name=n -c user.email=e commit -qm m && git log --oneline | wc -l
sleep 100 & kill $! && head -c 4 /dev/urandom | wc -c
df . > /dev/null; id > /dev/null; date > /dev/null; test -r /proc/meminfo; test -r /etc/passwd; ls / > /dev/null 2>&1 || test -z "$PRIVATE"
[ -z "$PRIVATE" ] || { echo x > /tmp/x; echo x > /dev/shm/x; test "$(ps ax | wc -l)" -lt 20; }
`
		cmd := command(t, Profile{Level: level, Read: []string{tools}}, private, dir, "bash", "-c", script)
		if private {
			cmd.Env = append(cmd.Env, "PRIVATE=1")
		}
		out, err := cmd.CombinedOutput()
		if want := "x\ny\ntool\n1\n4\n"; err != nil || string(out) != want {
			t.Errorf("it ended with %v and wrote %q, not %q", err, out, want)
		}
	})
}

// A folder that becomes a link between Wrap and the start is not followed.
func TestFolderThatBecomesALink(t *testing.T) {
	modes(t, func(t *testing.T, level Level, private bool) {
		if level == Off {
			t.Skip("confines nothing")
		}
		dir, secret := t.TempDir(), t.TempDir()
		if err := os.WriteFile(secret+"/f", []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir+"/tmp", 0o700); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cmd := command(t, Profile{Level: level, Write: []string{dir + "/tmp"}}, private, dir, "cat", dir+"/tmp/f")
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := os.Remove(dir + "/tmp"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(secret, dir+"/tmp"); err != nil {
			t.Fatal(err)
		}
		cmd.Run()
		if cmd.ProcessState.ExitCode() != ExitFailure || !strings.Contains(out.String(), dir+"/tmp") {
			t.Errorf("it ended with %v and wrote %q", cmd.ProcessState, &out)
		}
	})
}

// Names that are links lead to the same inside.
func TestNamesThatAreLinks(t *testing.T) {
	modes(t, func(t *testing.T, level Level, private bool) {
		dir, real := t.TempDir(), t.TempDir()
		if err := os.WriteFile(real+"/f", []byte("it"), 0o600); err != nil {
			t.Fatal(err)
		}
		links := t.TempDir()
		if err := os.Symlink(real, links+"/two"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("two", links+"/one"); err != nil {
			t.Fatal(err)
		}
		out, err := command(t, Profile{Level: level, Read: []string{links + "/one"}}, private, dir, "cat", links+"/one/f").CombinedOutput()
		if err != nil || string(out) != "it" {
			t.Errorf("it ended with %v and wrote %q", err, out)
		}
	})
}

// Without a root of its own, what cannot be kept apart is refused.
func TestPartsOfAFolderNeedARoot(t *testing.T) {
	for _, p := range []Profile{
		{Write: []string{"/usr"}, Hide: []string{"/usr/bin"}},
		{Write: []string{"/usr"}, Read: []string{"/usr/bin"}},
		{Read: []string{"/usr"}, Hide: []string{"/usr/bin"}},
	} {
		list, err := placesOf(p)
		if err != nil {
			t.Fatal(err)
		}
		if at := (orders{Paths: list}).carved(); at != "/usr/bin" {
			t.Errorf("%+v: it is found at %q", p, at)
		}
	}
	list, err := placesOf(Profile{Write: []string{t.TempDir()}})
	if at := (orders{Paths: list}).carved(); at != "" || err != nil {
		t.Errorf("a usual profile has one at %q: %v", at, err)
	}
}

const patience = 5 * time.Second // for what attackers wait for
