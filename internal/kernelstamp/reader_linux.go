// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package kernelstamp

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reader reads a TCP socket together with the kernel's receive stamps (SO_TIMESTAMPNS). It is as fast as a plain read. Only one
// goroutine may read at a time, as net/http does.
type Reader struct {
	tcp *net.TCPConn
	raw syscall.RawConn
	try func(fd uintptr) bool // made once: a closure per read would be garbage per token

	prepare func() (empty bool, err error) // called before the read; nil once it was called
	failed  error                          // of prepare
	p       []byte                         // of the read
	in      Message
	n       int
	errno   syscall.Errno
	waited  bool
}

// Message reads sockets that have receive stamps, one after the other. The zero value is ready; only one goroutine may use it at
// a time.
type Message struct {
	hdr unix.Msghdr
	iov unix.Iovec
	oob [8]uint64 // control data, aligned
}

// Enable asks the kernel for receive stamps on a socket.
func Enable(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) //nolint:wrapcheck // the caller names the socket
}

// NewReader returns a Reader for a connection, or nil if the kernel has no receive stamps for its socket.
func NewReader(c *net.TCPConn) *Reader {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = Enable(int(fd)) })
	if err != nil || set != nil {
		return nil
	}
	r := &Reader{tcp: c, raw: raw}
	r.try = r.receive
	return r
}

// Read reads like net.Conn. ns is the wall-clock time at which the kernel received the last segment that the bytes came from,
// or 0 if it is unknown. waited says whether the socket was empty at first.
func (r *Reader) Read(p []byte) (n int, ns int64, waited bool, err error) { return r.ReadAfter(nil, p) }

// ReadAfter calls prepare, if it is not nil, and then reads. The runtime's poller listens by then. So if prepare says that the socket was
// empty before it, the socket is not read until something arrives, which saves a system call. ReadAfter returns an error of prepare. It does
// not call prepare if the connection is closed.
func (r *Reader) ReadAfter(prepare func() (empty bool, err error), p []byte) (n int, ns int64, waited bool, err error) {
	if len(p) == 0 {
		return 0, 0, false, nil
	}
	r.prepare, r.failed, r.p = prepare, nil, p
	r.waited = false
	err = r.raw.Read(r.try)
	r.prepare, r.p = nil, nil // do not keep them alive
	switch {
	case r.failed != nil:
		return 0, 0, false, r.failed
	case err != nil:
		return 0, 0, r.waited, err // deadline passed or socket closed: already a net.OpError
	case r.errno != 0:
		return 0, 0, r.waited, &net.OpError{
			Op: "read", Net: "tcp", Source: r.tcp.LocalAddr(), Addr: r.tcp.RemoteAddr(),
			Err: os.NewSyscallError("recvmsg", r.errno),
		}
	case r.n == 0:
		return 0, 0, r.waited, io.EOF
	}
	return r.n, r.in.stamp(), r.waited, nil
}

// receive makes one attempt to read. It returns false if the socket is empty, and is called again when there is something to
// read.
func (r *Reader) receive(fd uintptr) bool {
	if prepare := r.prepare; prepare != nil {
		r.prepare = nil
		empty, err := prepare()
		if r.failed = err; err != nil {
			return true
		}
		if r.waited = empty; empty {
			return false
		}
	}
	r.n, r.errno = r.in.receive(fd, r.p)
	if r.errno == unix.EAGAIN {
		r.waited = true
		return false
	}
	return true
}

// Receive reads from a non-blocking socket into p, which must not be empty. ns is as for [Reader.Read]. The errno EAGAIN
// says that the socket is empty; without an errno, 0 bytes are the end.
func (m *Message) Receive(fd int, p []byte) (n int, ns int64, errno syscall.Errno) {
	n, errno = m.receive(uintptr(fd), p)
	if errno != 0 || n == 0 {
		return 0, 0, errno
	}
	return n, m.stamp(), 0
}

// receive reads once.
//
// The call does not block, so it is a raw system call. A call that the Go runtime knows of would wake the runtime's monitor
// thread, which then polls every 20 µs until the process is idle again. At a low rate of tokens, that would be most of the cost
// of a token.
func (m *Message) receive(fd uintptr, p []byte) (int, syscall.Errno) {
	m.iov.Base = &p[0]
	m.iov.SetLen(len(p))
	for {
		m.hdr.Iov = &m.iov
		m.hdr.SetIovlen(1)
		m.hdr.Control = (*byte)(unsafe.Pointer(&m.oob)) //nolint:gosec // golang.org/x/sys/unix.Recvmsg allocates at each call
		m.hdr.SetControllen(len(m.oob) * 8)
		n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&m.hdr)), 0) //nolint:gosec // as above
		if errno == unix.EINTR {
			continue
		}
		m.iov.Base = nil     // do not keep p alive
		return int(n), errno // at most len(p)
	}
}

// stamp finds the receive stamp in the control data, where it is the first message.
func (m *Message) stamp() int64 {
	if int(m.hdr.Controllen) < unix.CmsgLen(int(unsafe.Sizeof(unix.Timespec{}))) { //nolint:gosec // at most 64
		return 0
	}
	head := (*unix.Cmsghdr)(unsafe.Pointer(&m.oob)) //nolint:gosec // aligned, and the length was checked
	if head.Level != unix.SOL_SOCKET || head.Type != unix.SCM_TIMESTAMPNS {
		return 0
	}
	return (*unix.Timespec)(unsafe.Add(unsafe.Pointer(&m.oob), unix.CmsgLen(0))).Nano() //nolint:gosec // as above
}
