package sandbox

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// families are the kinds of sockets that a command may have whose network is
// confined. Others, such as those to the machine that a virtual machine runs in,
// reach out of every namespace, and Landlock does not know them.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// architectures are those that filters can be made for, as the kernel names them.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// canFilter tells whether calls can be filtered here.
func canFilter() bool { return architectures[runtime.GOARCH] != 0 }

// filterSockets takes from this thread, and what it starts, all sockets but those of
// families, and what could make them in another way: rings of requests to the
// kernel, and calls of programs of another architecture.
func filterSockets() error {
	program := socketFilter(architectures[runtime.GOARCH])
	list := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&list)), 0, 0); err != nil {
		return fmt.Errorf("filtering calls: %w", err)
	}
	return nil
}

// Where the kernel tells a filter about a call.
const (
	callNumber       = 0
	callArchitecture = 4
	callFirst        = 16 // the lower half of the first argument, on machines that keep that first
)

// otherABI is set in the numbers of calls by programs with short pointers, on amd64.
const otherABI = 0x4000_0000

// socketFilter returns the program of filterSockets.
func socketFilter(architecture uint32) []unix.SockFilter {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	jump := func(test uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	end := func(verdict uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: verdict}
	}
	refuse := func(e unix.Errno) unix.SockFilter { return end(unix.SECCOMP_RET_ERRNO | uint32(e)) }
	program := []unix.SockFilter{
		load(callArchitecture),
		jump(unix.BPF_JEQ, architecture, 1, 0),
		refuse(unix.ENOSYS),
		load(callNumber),
		jump(unix.BPF_JGE, otherABI, 1, 0),
		jump(unix.BPF_JEQ, unix.SYS_IO_URING_SETUP, 0, 1),
		refuse(unix.ENOSYS),
		jump(unix.BPF_JEQ, unix.SYS_SOCKET, 1, 0),
		end(unix.SECCOMP_RET_ALLOW),
		load(callFirst),
	}
	for i, family := range families {
		program = append(program, jump(unix.BPF_JEQ, family, uint8(len(families)-i), 0))
	}
	return append(program, refuse(unix.EAFNOSUPPORT), end(unix.SECCOMP_RET_ALLOW))
}
