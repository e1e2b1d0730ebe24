// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/moonloop/moonloop/agent/send"
	"golang.org/x/sys/unix"
)

// bareSends is the floor for the lateness with which a request leaves, in whatever language a client is written: one thread, a connection
// that is free, one write, and one wait for the next instant or the next reply. It neither polls the clock nor records anything.
var bareSends = floor{label: "floor: one thread, bare system calls", reader: "sends"}

// readSends sends each request at its instant, over connections that are kept, and reads the replies in between.
func readSends(ctx context.Context, address string, w work, streams []tally) error {
	host, request, err := bareRequest(address, w)
	if err != nil {
		return err
	}
	to, err := socketAddress(host)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the timer slack is the thread's
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	s := sends{to: to, shared: new(send.TokenScanner), buffer: make([]byte, 4096)}
	if s.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	defer s.close()
	began := time.Now()
	for next, open := 0, 0; next < len(w.at) || open > 0; {
		wait := time.Second // for a look at ctx
		if next < len(w.at) {
			wait = time.Until(began.Add(time.Duration(w.at[next] * float64(time.Millisecond))))
			if wait <= 0 {
				if err := s.send(request(next), &streams[next]); err != nil {
					return err
				}
				next, open = next+1, open+1
				continue
			}
		}
		ended, err := s.read(min(wait, time.Second))
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		open -= ended
	}
	return nil
}

// sends has the connections of one thread.
type sends struct {
	to     unix.Sockaddr
	poll   int
	of     []exchange // by socket
	idle   []int
	shared *send.TokenScanner
	buffer []byte
	events [256]unix.EpollEvent
}

// exchange is what a connection is being used for.
type exchange struct {
	open  bool
	tally *tally
	reply splitter
}

// send writes a request to a connection that is free, or to a new one.
func (s *sends) send(request []byte, t *tally) error {
	if len(s.idle) == 0 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		for fd >= len(s.of) {
			s.of = append(s.of, exchange{})
		}
		s.of[fd].open = true
		if err := errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), unix.Connect(fd, s.to), unix.SetNonblock(fd, true),
			unix.EpollCtl(s.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})); err != nil {
			return err
		}
		s.idle = append(s.idle, fd)
	}
	last := len(s.idle) - 1
	fd := s.idle[last]
	s.idle = s.idle[:last]
	s.of[fd] = exchange{open: true, tally: t, reply: splitter{scan: s.shared}}
	if n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(request))), uintptr(len(request))); errno != 0 || int(n) < len(request) {
		return fmt.Errorf("write: %w", errno)
	}
	return nil
}

// read waits for replies for at most this long, and returns how many have ended.
func (s *sends) read(wait time.Duration) (ended int, err error) {
	most := unix.NsecToTimespec(int64(wait))
	// A raw call: Go's runtime would otherwise wake its monitor for each call. Nothing else runs in this process.
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(s.poll), uintptr(unsafe.Pointer(&s.events)), uintptr(len(s.events)), uintptr(unsafe.Pointer(&most)), 0, 0)
	if errno != 0 && errno != syscall.EINTR {
		return 0, fmt.Errorf("epoll_pwait2: %w", errno)
	}
	for _, e := range s.events[:max(int(n), 0)] {
		x := &s.of[e.Fd]
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(e.Fd), uintptr(unsafe.Pointer(unsafe.SliceData(s.buffer))), uintptr(len(s.buffer)))
		if errno == unix.EAGAIN {
			continue
		}
		if errno != 0 || n == 0 || x.tally == nil {
			return ended, fmt.Errorf("read: %d bytes: %w", n, errno)
		}
		tokens, err := x.reply.feed(s.buffer[:n])
		if x.tally.add(tokens, 0); err != nil {
			return ended, err
		}
		if x.reply.at == over {
			x.tally, s.idle, ended = nil, append(s.idle, int(e.Fd)), ended+1
		}
	}
	return ended, nil
}

func (s *sends) close() {
	for fd, x := range s.of {
		if x.open {
			_ = unix.Close(fd)
		}
	}
	_ = unix.Close(s.poll)
}
