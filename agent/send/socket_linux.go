// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// haveSockets reports whether connections can be examined.
const haveSockets = true

// socket writes to a TCP connection, and checks whether it is still open, by raw system calls, which do not block. A call that the runtime
// knows of would wake its monitor thread, which then polls every 20 µs until the process is idle again. At 5,000 requests a second, that
// is a twentieth of a core.
type socket struct {
	tcp *net.TCPConn
	raw syscall.RawConn
	// Made once: closures per call would be garbage.
	send func(fd uintptr) bool
	once func(fd uintptr)
	peek func(fd uintptr)

	rest  []byte // of the present write
	errno syscall.Errno
	quiet bool
}

// newSocket returns nil for a connection that is not a TCP socket.
func newSocket(c net.Conn) *socket {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	s := &socket{tcp: tcp, raw: raw}
	s.send, s.peek = s.trySend, s.look
	s.once = func(fd uintptr) { s.trySend(fd) }
	return s
}

// Write writes like net.Conn. Only one goroutine may write at a time.
func (s *socket) Write(p []byte) (int, error) {
	s.rest, s.errno = p, 0
	return s.ended(p, s.raw.Write(s.send))
}

// WriteNow is a Write that does not wait for room: it returns how much the kernel accepted.
func (s *socket) WriteNow(p []byte) (int, error) {
	s.rest, s.errno = p, 0
	return s.ended(p, s.raw.Control(s.once))
}

// ended returns the result of a write of p.
func (s *socket) ended(p []byte, err error) (int, error) {
	n := len(p) - len(s.rest)
	s.rest = nil
	if err == nil && s.errno != 0 {
		err = &net.OpError{Op: "write", Net: "tcp", Source: s.tcp.LocalAddr(), Addr: s.tcp.RemoteAddr(), Err: os.NewSyscallError("sendto", s.errno)}
	}
	return n, err
}

// trySend returns false if the kernel has no room for more.
func (s *socket) trySend(fd uintptr) bool {
	for len(s.rest) > 0 {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&s.rest[0])), uintptr(len(s.rest)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0) //nolint:gosec // the kernel reads it
		switch errno {
		case 0:
			s.rest = s.rest[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			s.errno = errno
			return true
		}
	}
	return true
}

// Quiet reports whether the connection is open without unread input; its end counts as input.
func (s *socket) Quiet() bool {
	s.quiet = false
	return s.raw.Control(s.peek) == nil && s.quiet
}

func (s *socket) look(fd uintptr) {
	var b [1]byte
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0) //nolint:gosec // the kernel writes a byte there
		if errno != unix.EINTR {
			s.quiet = errno == unix.EAGAIN
			return
		}
	}
}
