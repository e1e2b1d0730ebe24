// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stamper reads a TCP socket together with the kernel's receive stamps (SO_TIMESTAMPNS). A plain read would cost the
// same; the stamp is free of our own scheduling delay, which is most of what distorts inter-token latencies.
//
// As net/http does, one goroutine reads at a time.
type stamper struct {
	tcp *net.TCPConn
	raw syscall.RawConn
	try func(fd uintptr) bool // made once: a closure per read would be garbage per token

	hdr    unix.Msghdr
	iov    unix.Iovec
	oob    [8]uint64 // control data, aligned
	n      int
	errno  syscall.Errno
	waited bool
}

// newStamper returns nil where the kernel does not stamp.
func newStamper(c *net.TCPConn) *stamper {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	if err != nil || set != nil {
		return nil
	}
	s := &stamper{tcp: c, raw: raw}
	s.try = s.receive
	return s
}

// read reads like net.Conn. ns is the wall-clock reading at which the kernel received the last segment that the read
// took bytes from, 0 when it does not say. waited is whether the socket was empty at first.
func (s *stamper) read(p []byte) (n int, ns int64, waited bool, err error) {
	if len(p) == 0 {
		return 0, 0, false, nil
	}
	s.iov.Base = &p[0]
	s.iov.SetLen(len(p))
	s.waited = false
	err = s.raw.Read(s.try)
	s.iov.Base = nil // do not keep p alive
	switch {
	case err != nil:
		return 0, 0, s.waited, err // deadline passed or socket closed: already a net.OpError
	case s.errno != 0:
		return 0, 0, s.waited, &net.OpError{
			Op: "read", Net: "tcp", Source: s.tcp.LocalAddr(), Addr: s.tcp.RemoteAddr(),
			Err: os.NewSyscallError("recvmsg", s.errno),
		}
	case s.n == 0:
		return 0, 0, s.waited, io.EOF
	}
	return s.n, s.stamp(), s.waited, nil
}

// receive makes one attempt. It returns false when the socket is empty, to be called again when it is not.
func (s *stamper) receive(fd uintptr) bool {
	for {
		s.hdr.Iov = &s.iov
		s.hdr.SetIovlen(1)
		s.hdr.Control = (*byte)(unsafe.Pointer(&s.oob)) //nolint:gosec // golang.org/x/sys/unix.Recvmsg allocates at each call
		s.hdr.SetControllen(len(s.oob) * 8)
		n, _, errno := unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&s.hdr)), 0) //nolint:gosec // as above
		if errno == unix.EINTR {
			continue
		}
		if errno == unix.EAGAIN {
			s.waited = true
			return false
		}
		s.n, s.errno = int(n), errno // at most len(p)
		return true
	}
}

// stamp finds the receive stamp in the control data, which the option makes the only or the first message.
func (s *stamper) stamp() int64 {
	if int(s.hdr.Controllen) < unix.CmsgLen(int(unsafe.Sizeof(unix.Timespec{}))) { //nolint:gosec // at most 64
		return 0
	}
	head := (*unix.Cmsghdr)(unsafe.Pointer(&s.oob)) //nolint:gosec // aligned, and the length was checked
	if head.Level != unix.SOL_SOCKET || head.Type != unix.SCM_TIMESTAMPNS {
		return 0
	}
	return (*unix.Timespec)(unsafe.Add(unsafe.Pointer(&s.oob), unix.CmsgLen(0))).Nano() //nolint:gosec // as above
}
