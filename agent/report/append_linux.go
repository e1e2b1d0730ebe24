// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// appendNow appends to a regular file by raw system calls. A call that the runtime knows of would wake the runtime's monitor thread, which
// then checks every 20 µs for a few milliseconds. With thousands of requests a second, the thread would never rest, and would use a tenth
// of the CPU time of a request. The disadvantage: if the disk makes the call wait, the goroutines of this processor wait, too. It returns the
// number of bytes that were written.
func appendNow(f *os.File, p []byte) (int, error) {
	all := len(p)
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed syscall.Errno
	err = raw.Control(func(fd uintptr) {
		for len(p) > 0 && failed == 0 {
			n, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))) //nolint:gosec // the kernel reads it
			switch errno {
			case 0:
				p = p[n:]
			case unix.EINTR:
			default:
				failed = errno
			}
		}
	})
	if err == nil && failed != 0 {
		err = &os.PathError{Op: "write", Path: f.Name(), Err: failed}
	}
	return all - len(p), err
}
