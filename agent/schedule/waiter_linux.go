// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/moonloop/moonloop/agent/clock"
)

// NewWaiter returns a Waiter on a timerfd that is read through the runtime's poller: the kernel's
// high-resolution timer wakes the goroutine, without the runtime's rounding to milliseconds and without
// holding an operating-system thread.
//
// In the last part of each wait, the Waiter reads the clock again and again instead of sleeping. This part is about as long as recent
// wake-ups took on this machine, but at most spin, and at most half of the wait. A spin of 0 uses the least CPU; such a Waiter is never
// patient.
func NewWaiter(clk clock.Clock, spin time.Duration) (Waiter, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create kernel timer: %w", err)
	}
	// os.NewFile adds a non-blocking descriptor to the runtime's poller.
	t := &timerfd{clk: clk, most: spin, spin: spin / 2, file: os.NewFile(uintptr(fd), "timerfd")}
	if t.raw, err = t.file.SyscallConn(); err != nil {
		_ = t.file.Close()
		return nil, fmt.Errorf("create kernel timer: %w", err)
	}
	t.try = t.expired
	if spin > 0 { // the meter of hiccups does not spin, and needs no second descriptor, because it never waits patiently
		if err := t.start(clk); err != nil {
			_ = t.file.Close()
			return nil, err
		}
	}
	return t, nil
}

// timerfd makes raw system calls: none of them blocks, and a call that the runtime knows of would wake its monitor thread, which then
// checks every 20 µs until everything is idle again. On a mostly idle machine, as a load generator's should be, that would be most of the
// cost of a short sleep.
type timerfd struct {
	clk  clock.Clock
	spin time.Duration // follows the duration of wake-ups
	most time.Duration // maximum of spin
	file *os.File
	raw  syscall.RawConn
	try  func(fd uintptr) bool // made once, because a closure per wait would be garbage
	// woken is set before the read deadline is moved into the past, so that a Wake between two waits is seen by the next wait, although that
	// wait clears the deadline.
	woken atomic.Bool

	// Of the current wait:
	until time.Duration
	rings time.Duration // when the timer rings
	armed bool
	short bool          // the wait is too short to learn the duration of wake-ups from it
	errno syscall.Errno // why the timer could not be set; 0 = it could
	spec  unix.ItimerSpec
	count uint64 // of expirations, as the kernel writes it

	patience
}

func (t *timerfd) Wait(until time.Duration, calm func() bool) bool {
	now := t.clk.Now()
	t.relent(now, until)
	if now >= until {
		return true
	}
	if calm != nil && t.waitPatiently(until, calm) {
		t.learn()
		t.spinTo(until)
		return true
	}
	_ = t.file.SetReadDeadline(time.Time{}) // cannot fail on a descriptor in the poller
	if t.woken.Swap(false) {
		return false
	}
	t.until, t.armed, t.errno = until, false, 0
	if err := t.raw.Read(t.try); errors.Is(err, os.ErrDeadlineExceeded) {
		t.woken.Store(false)
		return false
	}
	if t.errno != 0 {
		time.Sleep(until - t.clk.Now()) // without a timer, still do not send early
	}
	t.learn()
	t.spinTo(until)
	return true
}

// spinTo reads the clock until it shows a time: at most for the time spin, unless the timer failed.
func (t *timerfd) spinTo(until time.Duration) {
	for t.clk.Now() < until {
	}
}

// learn adjusts the spin so that about half of the wake-ups are late: up by a step after a late one, down after any other.
func (t *timerfd) learn() {
	const step = 500 * time.Nanosecond
	switch {
	case !t.armed || t.short:
	case t.clk.Now() > t.until:
		t.spin = min(t.spin+step, t.most)
	default:
		t.spin = max(t.spin-step, 0)
	}
}

// expired sets the timer in the first call of a wait. After that it returns true when only spinning is left. The clock shows that, so the
// timer need not be read: setting it for the next wait clears the expiry, and the poller reports each expiry even if the one before was not
// read. The timer is set here, when the poller already listens, because setting it earlier would cost a read that finds nothing.
func (t *timerfd) expired(fd uintptr) bool {
	if t.armed && t.clk.Now() >= t.rings {
		return true
	}
	for t.armed { // the poller has reported an earlier expiry
		_, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&t.count)), unsafe.Sizeof(t.count)) //nolint:gosec // the kernel writes 8 bytes there
		if errno != unix.EINTR {
			return errno != unix.EAGAIN
		}
	}
	left := t.until - t.clk.Now()
	if left <= t.spin { // no time to sleep; and 0 would disarm the timer, and wait forever
		return true
	}
	t.short = t.spin > left/2
	asleep := left - min(t.spin, left/2)
	t.rings = t.until - left + asleep
	t.spec = unix.ItimerSpec{Value: unix.NsecToTimespec(int64(asleep))}
	_, _, t.errno = unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&t.spec)), 0, 0, 0) //nolint:gosec // the kernel reads it
	t.armed = t.errno == 0
	return t.errno != 0
}

func (t *timerfd) Wake() {
	t.woken.Store(true)
	_ = t.file.SetReadDeadline(time.Unix(1, 0))
}

func (t *timerfd) Close() error {
	t.bell.close()
	return t.file.Close()
}
