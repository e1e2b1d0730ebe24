// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/internal/kernelstamp"
	"golang.org/x/sys/unix"
)

// batchEvery is the interval of a loop that does not wake up for each token. Timestamps are the kernel's, so this loses no precision.
const batchEvery = time.Millisecond

// readEpoll reads all streams in one loop that wakes up whenever a socket is readable. The kernel tells which sockets are, and each is read
// once.
func readEpoll(ctx context.Context, address string, w work, streams []tally) error {
	poll, err := newPoller(0)
	if err != nil {
		return err
	}
	return readLoop(ctx, poll, address, w, streams)
}

// readBatches reads in the same way, but its loop wakes up only every [batchEvery], once for many tokens.
func readBatches(ctx context.Context, address string, w work, streams []tally) error {
	poll, err := newPoller(batchEvery)
	if err != nil {
		return err
	}
	return readLoop(ctx, poll, address, w, streams)
}

func readLoop(ctx context.Context, poll *poller, address string, w work, streams []tally) error {
	defer poll.close()
	stop := context.AfterFunc(ctx, poll.close)
	defer stop()
	opened := make(chan error, 1)
	go func() {
		opened <- openAll(ctx, address, w, func(fd, i int) error {
			return unix.EpollCtl(poll.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd), Pad: int32(i)})
		})
	}()
	shared := new(send.TokenScanner)
	splitters := make([]splitter, w.streams)
	var in kernelstamp.Message
	buffer := make([]byte, 64<<10)
	for open := w.streams; open > 0; {
		events, err := poll.wait()
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
		select {
		case err := <-opened:
			if err != nil {
				return err
			}
		default:
		}
		for _, e := range events {
			n, ns, errno := in.Receive(int(e.Fd), buffer)
			switch {
			case errno == unix.EAGAIN:
				continue
			case errno != 0:
				return fmt.Errorf("recvmsg: %w", errno)
			case n == 0:
				return io.ErrUnexpectedEOF
			}
			s := &splitters[e.Pad]
			s.scan = shared
			tokens, err := s.feed(buffer[:n])
			if streams[e.Pad].add(tokens, ns); err != nil {
				return err
			}
			if s.at == over {
				open--
				if err := unix.Close(int(e.Fd)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// openAll connects and sends each stream's request at its start time, and passes the socket, which does not block, to a function.
func openAll(ctx context.Context, address string, w work, take func(fd, i int) error) error {
	host, request, err := bareRequest(address, w)
	if err != nil {
		return err
	}
	peer, err := socketAddress(host)
	if err != nil {
		return err
	}
	inTurn(ctx, w, func(i int) {
		if err == nil {
			err = openOne(peer, request(i), func(fd int) error { return take(fd, i) })
		}
	})
	return err
}

// socketAddress returns a host with its port as the kernel takes it.
func socketAddress(host string) (unix.Sockaddr, error) {
	to, err := net.ResolveTCPAddr("tcp4", host)
	if err != nil {
		return nil, err
	}
	return &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}, nil
}

func openOne(to unix.Sockaddr, request []byte, take func(fd int) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = errors.Join(kernelstamp.Enable(fd), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), unix.Connect(fd, to))
	if err == nil {
		_, err = unix.Write(fd, request)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err == nil {
		err = take(fd)
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	return nil
}

// poller is an epoll instance that Go's own poller waits for: so a waiting goroutine holds no thread and does not delay the garbage
// collector, as a blocking system call would.
type poller struct {
	fd     int
	own    *os.File
	wake   *os.File // the file to wait for: the instance itself, or a timer
	raw    syscall.RawConn
	try    func(fd uintptr) bool // made once: a closure for each wait would be garbage
	events [256]unix.EpollEvent
	n      int
	errno  syscall.Errno
}

// newPoller returns a poller that waits for sockets, or, with an interval, for a timer.
func newPoller(every time.Duration) (p *poller, err error) {
	p = new(poller)
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(p.fd, true); err != nil { // otherwise Go's poller rejects it
		return nil, errors.Join(err, unix.Close(p.fd))
	}
	p.own = os.NewFile(uintptr(p.fd), "epoll")
	p.wake, p.try = p.own, func(uintptr) bool { return p.look() }
	if every > 0 {
		if p.wake, err = newTimer(every); err != nil {
			return nil, errors.Join(err, p.own.Close())
		}
		p.try = p.tick
	}
	if p.raw, err = p.wake.SyscallConn(); err != nil {
		return nil, err
	}
	return p, nil
}

// newTimer returns a timer of the kernel: Go's own timers have a resolution of only a millisecond, and fire late.
func newTimer(every time.Duration) (*os.File, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	each := unix.NsecToTimespec(int64(every))
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: each, Value: each}, nil); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "timer"), nil
}

func (p *poller) close() {
	_ = p.wake.Close()
	_ = p.own.Close() // no longer needed
}

// wait returns the readable sockets, at least one.
func (p *poller) wait() ([]unix.EpollEvent, error) {
	if p.n == len(p.events) && p.look() { // there may be more
		return p.events[:p.n], nil
	}
	if err := p.raw.Read(p.try); err != nil {
		return nil, err
	}
	if p.errno != 0 {
		return nil, fmt.Errorf("epoll_wait: %w", p.errno)
	}
	return p.events[:p.n], nil
}

// look asks for readable sockets without waiting.
func (p *poller) look() bool {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events)), uintptr(len(p.events)), 0, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		p.n, p.errno = int(n), errno
		return errno != 0 || n > 0
	}
}

// tick asks for readable sockets if the timer has fired.
func (p *poller) tick(fd uintptr) bool {
	var fired uint64
	_, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&fired)), unsafe.Sizeof(fired))
	return errno == 0 && p.look()
}
