//go:build linux

package sandbox

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// playAttacker makes an attempt that no shell can.
func playAttacker(args []string) int {
	attack, ok := attacks[args[0]]
	if !ok {
		fmt.Println("there is no attack", args[0])
		return 1
	}
	if err := attack(args[1:]); err != nil {
		fmt.Printf("%s: %v\n", args[0], err)
		return 1
	}
	return 0
}

// won says that the attempt has succeeded if there is no error.
func won(err error) error {
	if err == nil {
		fmt.Println("ESCAPED")
	}
	return err
}

// tell prints what can be read.
func tell(r io.Reader) error {
	_, err := io.Copy(os.Stdout, io.LimitReader(r, 1<<20))
	return err
}

func number64(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

var attacks = map[string]func([]string) error{
	"truncate": func(a []string) error { return unix.Truncate(a[0], 1) },
	"exchange": func(a []string) error {
		return unix.Renameat2(unix.AT_FDCWD, a[0], unix.AT_FDCWD, a[1], unix.RENAME_EXCHANGE)
	},
	"xattr":     func(a []string) error { return unix.Setxattr(a[0], "user.x", []byte("x"), 0) },
	"race":      race,
	"mem":       readMemory,
	"inherited": func([]string) error { return inherited() },
	"handle":    openByHandle,
	"uring":     openByRing,
	"memfd":     runInMemory,
	"ptrace": func(a []string) error {
		runtime.LockOSThread()
		pid := int(number64(a[0]))
		err := syscall.PtraceAttach(pid)
		if err == nil {
			syscall.Wait4(pid, nil, 0, nil)
			syscall.PtraceDetach(pid)
		}
		return won(err)
	},
	"readv": func(a []string) error {
		buf := make([]byte, 64)
		local := []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}
		n, err := unix.ProcessVMReadv(int(number64(a[0])), local, []unix.RemoteIovec{{Base: uintptr(number64(a[1])), Len: len(buf)}}, 0)
		if err == nil {
			fmt.Printf("%s\n", buf[:n])
		}
		return err
	},
	"getfd": func(a []string) error {
		pid, err := unix.PidfdOpen(int(number64(a[0])), 0)
		if err != nil {
			return err
		}
		fd, err := unix.PidfdGetfd(pid, 3, 0)
		if err != nil {
			return err
		}
		return tell(io.NewSectionReader(os.NewFile(uintptr(fd), "theirs"), 0, 1<<10))
	},
	"tkill": func(a []string) error {
		pid := int(number64(a[0]))
		return unix.Tgkill(pid, pid, syscall.SIGTERM)
	},
	"chroot": func(a []string) error {
		if err := os.MkdirAll("jail", 0o700); err != nil {
			return err
		}
		if err := unix.Chroot("jail"); err != nil {
			return err
		}
		for range 64 {
			unix.Chdir("..")
		}
		if err := unix.Chroot("."); err != nil {
			return err
		}
		return tellFile(a[0])
	},
	"dial": func(a []string) error {
		conn, err := (&net.Dialer{Timeout: patience}).Dial(a[0], a[1])
		if err != nil {
			return err
		}
		return tell(conn)
	},
	"udp": func(a []string) error {
		conn, err := net.Dial("udp", a[0])
		if err != nil {
			return err
		}
		conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		buf := make([]byte, 64)
		n, err := conn.Read(buf)
		fmt.Printf("%s\n", buf[:n])
		return err
	},
	"fastopen": func(a []string) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		to := &unix.SockaddrInet4{Port: int(number64(a[0])), Addr: [4]byte{127, 0, 0, 1}}
		if err := unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, to); err != nil {
			return err
		}
		return tell(os.NewFile(uintptr(fd), "socket"))
	},
	"mptcp": func(a []string) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)
		if err != nil {
			return err
		}
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(number64(a[0])), Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		return tell(os.NewFile(uintptr(fd), "socket"))
	},
	"get": get,
	"ring": func([]string) error {
		_, _, err := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
		if err == unix.EFAULT {
			return won(nil)
		}
		return err
	},
	"vsock": func([]string) error { _, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0); return won(err) },
	"listen": func([]string) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 0, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		return won(unix.Listen(fd, 1))
	},
	"packet": func([]string) error {
		_, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		_, raw := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
		if raw == nil {
			err = nil
		}
		return won(err)
	},
}

func tellFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return tell(f)
}

// race reads through a name that is now a folder and now a link to the outside.
func race(a []string) error {
	ws, out := a[0], a[1]
	if err := os.MkdirAll(ws+"/good", 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(ws+"/good/secret", []byte("good"), 0o600); err != nil {
		return err
	}
	stop := make(chan struct{})
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			target := "good"
			if i%2 == 0 {
				target = out
			}
			os.Remove(ws + "/next")
			os.Symlink(target, ws+"/next")
			os.Rename(ws+"/next", ws+"/name")
		}
	}()
	var last error
	for range 20000 {
		text, err := os.ReadFile(ws + "/name/secret")
		if err != nil {
			last = err
		} else if string(text) != "good" {
			fmt.Printf("%s\n", text)
			break
		}
	}
	close(stop)
	return last
}

// readMemory looks for the secret in the memory of another process.
func readMemory(a []string) error {
	maps, err := os.Open("/proc/" + a[0] + "/maps")
	if err != nil {
		return err
	}
	mem, err := os.Open("/proc/" + a[0] + "/mem")
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		if !strings.Contains(lines.Text(), "[stack]") {
			continue
		}
		var from, to int64
		fmt.Sscanf(lines.Text(), "%x-%x", &from, &to)
		return tell(io.NewSectionReader(mem, from, to-from))
	}
	return lines.Err()
}

// inherited reads all descriptors that nobody opened here.
func inherited() error {
	err := error(unix.EBADF)
	for fd := 3; fd < 64; fd++ {
		buf := make([]byte, 64)
		if n, e := unix.Pread(fd, buf, 0); e == nil && n > 0 {
			fmt.Printf("%s\n", buf[:n])
			err = nil
		}
	}
	return err
}

func openByHandle(a []string) error {
	mount, err := unix.Open(a[0], unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	kind, text, _ := strings.Cut(a[1], ":")
	raw, err := hex.DecodeString(text)
	if err != nil {
		return err
	}
	fd, err := unix.OpenByHandleAt(mount, unix.NewFileHandle(int32(number64(kind)), raw), unix.O_RDONLY)
	if err != nil {
		return err
	}
	return tell(os.NewFile(uintptr(fd), "handle"))
}

// runInMemory executes a program that is in no folder.
func runInMemory(a []string) error {
	path, err := filepath.EvalSymlinks("/bin/cat")
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("x", 0)
	if err != nil {
		return err
	}
	if _, err := unix.Write(fd, text); err != nil {
		return err
	}
	return unix.Exec(fmt.Sprintf("/proc/self/fd/%d", fd), []string{"cat", a[0]}, os.Environ())
}

// ringParams is struct io_uring_params.
type ringParams struct {
	sqEntries, cqEntries, flags, cpu, idle, features, wq uint32
	resv                                                 [3]uint32
	sq                                                   struct{ head, tail, mask, entries, flags, dropped, array, resv, addr1, addr2 uint32 }
	cq                                                   struct{ head, tail, mask, entries, overflow, cqes, flags, resv, addr1, addr2 uint32 }
}

// openByRing has the kernel open a file through io_uring.
func openByRing(a []string) error {
	var p ringParams
	r, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return errno
	}
	const readWrite = unix.PROT_READ | unix.PROT_WRITE
	sq, err := unix.Mmap(int(r), 0, int(p.sq.array+4*p.sqEntries), readWrite, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	cq, err := unix.Mmap(int(r), 0x8000000, int(p.cq.cqes+16*p.cqEntries), readWrite, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	entries, err := unix.Mmap(int(r), 0x10000000, int(64*p.sqEntries), readWrite, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	path, err := unix.BytePtrFromString(a[0])
	if err != nil {
		return err
	}
	entries[0] = 18 // IORING_OP_OPENAT
	at := int32(unix.AT_FDCWD)
	*(*int32)(unsafe.Pointer(&entries[4])) = at
	*(*uint64)(unsafe.Pointer(&entries[16])) = uint64(uintptr(unsafe.Pointer(path)))
	*(*uint32)(unsafe.Pointer(&sq[p.sq.array])) = 0
	*(*uint32)(unsafe.Pointer(&sq[p.sq.tail])) = 1
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, r, 1, 1, 1, 0, 0); errno != 0 {
		return errno
	}
	runtime.KeepAlive(path)
	result := *(*int32)(unsafe.Pointer(&cq[p.cq.cqes+8]))
	if result < 0 {
		return syscall.Errno(-result)
	}
	return tell(os.NewFile(uintptr(result), "opened"))
}
