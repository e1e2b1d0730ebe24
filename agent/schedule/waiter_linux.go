// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moonloop/moonloop/agent/clock"
)

// spin is the last part of a wait, which is spent looking at the clock: the time that the kernel needs to wake
// a goroutine that reads a timer, at its shortest. More would only burn CPU.
const spin = 30 * time.Microsecond

// NewWaiter returns a Waiter on a timerfd that is read through the runtime's poller: the kernel's
// high-resolution timer wakes the goroutine, without the runtime's rounding to milliseconds and without
// holding an operating-system thread.
func NewWaiter(clk clock.Clock) (Waiter, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create kernel timer: %w", err)
	}
	// A non-blocking descriptor is taken into the runtime's poller by os.NewFile.
	return &timerfd{clk: clk, fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}, nil
}

type timerfd struct {
	clk  clock.Clock
	fd   int // the descriptor of file: file.Fd() would make it blocking
	file *os.File
	// woken is set before the read deadline is moved into the past, so that a Wake which falls between two
	// waits is seen by the next one although that one clears the deadline.
	woken atomic.Bool
}

func (t *timerfd) Wait(until time.Duration) bool {
	if t.clk.Now() >= until {
		return true
	}
	_ = t.file.SetReadDeadline(time.Time{}) // cannot fail on a descriptor in the poller
	if t.woken.Swap(false) {
		return false
	}
	if d := until - t.clk.Now() - spin; d > 0 {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
		if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
			time.Sleep(d) // a timer that cannot be set is no reason to send early
		} else {
			var expirations [8]byte
			if _, err := t.file.Read(expirations[:]); errors.Is(err, os.ErrDeadlineExceeded) {
				t.woken.Store(false)
				return false
			}
		}
	}
	for t.clk.Now() < until { // at most spin, unless the read failed
	}
	return true
}

func (t *timerfd) Wake() {
	t.woken.Store(true)
	_ = t.file.SetReadDeadline(time.Unix(1, 0))
}

func (t *timerfd) Close() error { return t.file.Close() }
