// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/moonloop/moonloop/agent/send"
	"golang.org/x/sys/unix"
)

// readRing reads all streams in one loop with io_uring: a standing order for each socket, whose bytes the kernel writes into registered
// buffers, and one system call for everything that has arrived. There is no system call for each token.
func readRing(ctx context.Context, address string, w work, streams []tally) error {
	runtime.LockOSThread() // only the thread that set the ring up may use it
	defer runtime.UnlockOSThread()
	r, err := newRing()
	if err != nil {
		return err
	}
	type socket struct{ fd, stream int }
	sockets, opened := make(chan socket, w.streams), make(chan error, 1)
	go func() {
		opened <- openAll(ctx, address, w, func(fd, i int) error { sockets <- socket{fd, i}; return nil })
	}()
	splitters, fds := make([]splitter, w.streams), make([]int, w.streams)
	shared := new(send.TokenScanner)
	for open := w.streams; open > 0; {
		for more := true; more; {
			select {
			case s := <-sockets:
				fds[s.stream] = s.fd
				r.order(s.fd, s.stream)
			case err := <-opened:
				if err != nil {
					return err
				}
			default:
				more = false
			}
		}
		if err := errors.Join(r.wait(), ctx.Err()); err != nil {
			return err
		}
		err := r.each(func(i int, data []byte, ns int64, more bool) error {
			s := &splitters[i]
			s.scan = shared
			switch {
			case s.at == over:
				return nil
			case data != nil && len(data) == 0:
				return io.ErrUnexpectedEOF
			}
			tokens, err := s.feed(data)
			if streams[i].add(tokens, ns); err != nil {
				return err
			}
			if s.at == over {
				open--
				return errors.Join(unix.Shutdown(fds[i], unix.SHUT_RDWR), unix.Close(fds[i])) // ends the order, too
			}
			if !more {
				r.order(fds[i], i)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Constants of <linux/io_uring.h>.
const (
	ringCQSize, ringCoopTaskrun, ringSingleIssuer, ringDeferTaskrun = 1 << 3, 1 << 8, 1 << 12, 1 << 13 // IORING_SETUP_*

	ringGetEvents, ringExtArg = 1 << 0, 1 << 3 // IORING_ENTER_*
	ringRegisterBuffers       = 22             // IORING_REGISTER_PBUF_RING
	ringOffSQEs               = 0x10000000
	opRecvmsg                 = 10
	sqeBufferSelect           = 1 << 5
	recvMultishot             = 1 << 1
	cqeBuffer, cqeMore        = 1 << 0, 1 << 1

	ringEntries = 1024
	ringBuffers = 4096 // a power of two
	bufferSize  = 2048
	controlSize = 64
)

type ringParams struct {
	sqEntries, cqEntries, flags, threadCPU, threadIdle, features, wq uint32
	_                                                                [3]uint32
	sq                                                               struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

type ringSQE struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off, addr     uint64
	length, op    uint32
	user          uint64
	bufGroup      uint16
	_             [22]byte
}

type ringCQE struct {
	user  uint64
	res   int32
	flags uint32
}

type ringBuffer struct {
	addr   uint64
	length uint32
	id     uint16
	tail   uint16 // of the whole ring, only in the first buffer
}

// ring is an io_uring with buffers for what is received.
type ring struct {
	fd                             int
	sqHead, sqTail, cqHead, cqTail *uint32
	sqArray                        []uint32
	sqes                           []ringSQE
	cqes                           []ringCQE
	pending                        uint32 // orders that were not submitted to the kernel
	buffers                        []ringBuffer
	memory                         []byte
	tail                           uint16
	message                        *unix.Msghdr // the shape of all orders
}

func newRing() (*ring, error) {
	p := ringParams{flags: ringCQSize | ringCoopTaskrun | ringSingleIssuer | ringDeferTaskrun, cqEntries: 16 * ringEntries}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, ringEntries, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}
	r := &ring{fd: int(fd), message: &unix.Msghdr{Controllen: controlSize}}
	size := max(p.sq.array+4*p.sqEntries, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(ringCQE{})))
	rings, err := unix.Mmap(r.fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("io_uring: %w", err)
	}
	orders, err := unix.Mmap(r.fd, ringOffSQEs, int(p.sqEntries)*int(unsafe.Sizeof(ringSQE{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("io_uring: %w", err)
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&rings[off])) }
	r.sqHead, r.sqTail, r.cqHead, r.cqTail = word(p.sq.head), word(p.sq.tail), word(p.cq.head), word(p.cq.tail)
	r.sqArray = unsafe.Slice(word(p.sq.array), p.sqEntries)
	r.sqes = unsafe.Slice((*ringSQE)(unsafe.Pointer(&orders[0])), p.sqEntries)
	r.cqes = unsafe.Slice((*ringCQE)(unsafe.Pointer(&rings[p.cq.cqes])), p.cqEntries)
	return r, r.giveBuffers()
}

// giveBuffers gives the kernel all buffers.
func (r *ring) giveBuffers() error {
	anonymous := func(size int) ([]byte, error) {
		return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
	}
	list, err := anonymous(ringBuffers * int(unsafe.Sizeof(ringBuffer{})))
	if err != nil {
		return fmt.Errorf("io_uring's buffers: %w", err)
	}
	if r.memory, err = anonymous(ringBuffers * bufferSize); err != nil {
		return fmt.Errorf("io_uring's buffers: %w", err)
	}
	register := struct {
		address      uint64
		entries      uint32
		group, flags uint16
		_            [3]uint64
	}{address: uint64(uintptr(unsafe.Pointer(&list[0]))), entries: ringBuffers}
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), ringRegisterBuffers, uintptr(unsafe.Pointer(&register)), 1, 0, 0); errno != 0 {
		return fmt.Errorf("io_uring's buffers: %w", errno)
	}
	r.buffers = unsafe.Slice((*ringBuffer)(unsafe.Pointer(&list[0])), ringBuffers)
	for id := range ringBuffers {
		r.give(uint16(id))
	}
	r.publish()
	return nil
}

// give returns a buffer; publish makes the returned buffers known to the kernel.
func (r *ring) give(id uint16) {
	b := &r.buffers[r.tail%ringBuffers]
	b.addr, b.length, b.id = uint64(uintptr(unsafe.Pointer(&r.memory[int(id)*bufferSize]))), bufferSize, id
	r.tail++
}

func (r *ring) publish() {
	// The tail is the upper half of the word with the first buffer's id, which the kernel does not read again before the tail says so.
	first := &r.buffers[0]
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&first.id)), uint32(first.id)|uint32(r.tail)<<16)
}

// order makes the kernel receive from a socket for as long as it can.
func (r *ring) order(fd, stream int) {
	if r.pending == ringEntries {
		_ = r.enter(0, nil) // the next wait reports failures
	}
	tail := *r.sqTail
	i := tail % ringEntries
	r.sqes[i] = ringSQE{
		opcode: opRecvmsg, flags: sqeBufferSelect, ioprio: recvMultishot, fd: int32(fd), addr: uint64(uintptr(unsafe.Pointer(r.message))), length: 1, user: uint64(stream),
	}
	r.sqArray[i] = i
	atomic.StoreUint32(r.sqTail, tail+1)
	r.pending++
}

// wait submits new orders to the kernel, and waits until something arrives, but not longer than 5 ms, because new sockets may have come.
func (r *ring) wait() error {
	limit := unix.NsecToTimespec(int64(5 * time.Millisecond))
	return r.enter(1, &limit)
}

func (r *ring) enter(least uintptr, limit *unix.Timespec) error {
	arg := struct {
		mask, size uint64
		limit      uint64
	}{limit: uint64(uintptr(unsafe.Pointer(limit)))}
	n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.pending), least, ringGetEvents|ringExtArg, uintptr(unsafe.Pointer(&arg)), unsafe.Sizeof(arg))
	runtime.KeepAlive(limit)
	switch errno {
	case 0:
		r.pending -= uint32(n)
	case syscall.ETIME, syscall.EINTR, syscall.EAGAIN, syscall.EBUSY:
		// No pending order was accepted: otherwise the call would have returned their number.
	default:
		return fmt.Errorf("io_uring_enter: %w", errno)
	}
	return nil
}

// each calls a function for everything that has arrived, with the kernel's timestamp. Empty data mean the end of a stream, nil data that
// nothing was received. more says that the order continues.
func (r *ring) each(take func(stream int, data []byte, ns int64, more bool) error) error {
	head, tail := *r.cqHead, atomic.LoadUint32(r.cqTail)
	for ; head != tail; head++ {
		c := r.cqes[int(head)%len(r.cqes)]
		var data []byte
		var ns int64
		id, taken := uint16(c.flags>>16), c.flags&cqeBuffer != 0
		switch {
		case c.res == -int32(unix.ENOBUFS): // the order ended, nothing is lost
		case c.res < 0:
			return fmt.Errorf("recvmsg: %w", syscall.Errno(-c.res))
		case taken:
			data, ns = unpack(r.memory[int(id)*bufferSize:][:c.res])
		}
		err := take(int(c.user), data, ns, c.flags&cqeMore != 0)
		if taken {
			r.give(id)
		}
		if err != nil {
			return err
		}
	}
	atomic.StoreUint32(r.cqHead, head)
	r.publish()
	return nil
}

// unpack returns the content of a buffer: four numbers, control data with the timestamp, and the bytes.
func unpack(b []byte) (data []byte, ns int64) {
	const numbers = 16
	if len(b) < numbers+controlSize {
		return nil, 0
	}
	head := (*unix.Cmsghdr)(unsafe.Pointer(&b[numbers]))
	if head.Level == unix.SOL_SOCKET && head.Type == unix.SCM_TIMESTAMPNS {
		ns = (*unix.Timespec)(unsafe.Pointer(&b[numbers+unix.CmsgLen(0)])).Nano()
	}
	return b[numbers+controlSize:], ns
}
