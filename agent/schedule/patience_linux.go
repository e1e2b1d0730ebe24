// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

// This file is the patient way of waiting. At thousands of short requests a second, a processor spends most of a request's cost on waking
// up: once to send the request, and once to read its reply, each time with caches that other work has filled. The kernel timestamps a
// reply, so the time of a reply that comes as a whole is the same if it is read later. Therefore a patient wait sleeps in the kernel, on the
// thread of the goroutine that waits, where nothing wakes it, and lets everything else run only once in pollPause. Replies, preparations and
// records then come in batches.
//
// Meanwhile the goroutine has a processor and does not use it. A program with several processors would miss it, and the others would wake
// up for each reply as before. So a wait is patient only in a program that has one.

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/moonloop/moonloop/agent/clock"
)

const (
	// pollPause is the usual time between polls.
	pollPause = 500 * time.Microsecond
	// longestPatience is the longest wait that can be patient. In a longer one, waking up for each reply costs less than looking for replies.
	longestPatience = 4 * pollPause
	// behind is the lateness from which a schedule does not catch up at once. The runtime also interrupts a goroutine that runs for that long.
	behind = 10 * time.Millisecond
	// idleYield is the maximum duration of a yield in which no other goroutine ran, without the time that reading the clock takes.
	idleYield = 2 * time.Microsecond
)

// patience is the state of patient waits.
type patience struct {
	alone  bool          // the program has one processor
	late   time.Duration // since when the schedule has been behind; 0 = it is not
	idle   time.Duration // the maximum duration of a yield in which no other goroutine ran
	polled time.Duration // when the poller was last asked
	others bool          // goroutines that could run may be left from then
	bell   bell
}

// start prepares patient waits, if the program has one processor.
func (p *patience) start(clk clock.Clock) error {
	if p.alone = runtime.GOMAXPROCS(0) == 1; !p.alone {
		return nil
	}
	const readings = 100
	before := clk.Now()
	for range readings {
		clk.Now()
	}
	p.idle = idleYield + 2*(clk.Now()-before)/readings
	return p.bell.open()
}

// waitPatiently waits until only spinning is left, and returns true. It returns false if the rest of the wait cannot be patient.
func (t *timerfd) waitPatiently(until time.Duration, calm func() bool) bool {
	if !t.alone {
		return false
	}
	t.until, t.armed = until, false
	for {
		now := t.clk.Now()
		if until-now > longestPatience || !t.others && !calm() {
			return false
		}
		rings := until - t.spin
		if now-t.polled >= pollPause { // even if that makes a request late: at very high rates, nothing else would ever run
			t.polled, t.others = now, true
			t.bell.ring()
			t.alone = runtime.GOMAXPROCS(0) == 1
		}
		if t.others {
			t.others = !t.yield(rings)
			now = t.clk.Now()
		}
		switch {
		case t.woken.Load() || !t.alone || !t.others && !calm(): // what is left may be what makes it busy
			return false
		case now >= rings:
			return true
		case rings > t.polled+MaxUnread:
			sleep(t.polled + pollPause - now)
		default:
			t.armed, t.short = true, t.spin > (until-now)/2
			if sleep(rings - now); t.clk.Now() >= rings {
				return true // before the next poll, which would make the request late
			}
		}
	}
}

// relent lets other goroutines run once if the schedule has fallen behind. Without that, requests would be started one after another, none
// of them would be sent, and no reply would be read whose connection the next one could use.
func (t *timerfd) relent(now, until time.Duration) {
	switch {
	case !t.alone:
		return
	case now-until < behind:
		t.late = 0
		return
	case t.late == 0: // requests that a stall has made late go first
		t.late = now
	}
	if now-max(t.late, t.polled) < pollPause {
		return
	}
	t.polled = now
	t.bell.ring()
	runtime.Gosched()
}

// yield lets other goroutines run until none can, and returns true; or until the given time has passed, and returns false.
func (t *timerfd) yield(until time.Duration) bool {
	for now := t.clk.Now(); now < until; {
		before := now
		runtime.Gosched()
		if now = t.clk.Now(); now-before <= t.idle {
			return true
		}
	}
	return false
}

// sleep sleeps without the runtime's knowledge. A signal ends it earlier.
func sleep(d time.Duration) {
	// The kernel may otherwise wake the thread up to 50 µs late, to save wake-ups. The thread may be another one at each call.
	_, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 1, 0)
	pause := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&pause)), 0, 0, 0) //nolint:gosec // the kernel reads it
}

// bell makes the runtime ask its poller. A goroutine that yields continues before the poller is asked. So ring waits instead: for a descriptor
// that it has just made readable. A timer that expires at once would do the same, but on a virtual machine it costs as much as sending a request.
type bell struct {
	file *os.File // an eventfd
	raw  syscall.RawConn
	try  func(fd uintptr) bool // made once, because a closure per call would be garbage
	rang bool
	one  uint64
}

func (b *bell) open() error {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("create eventfd: %w", err)
	}
	b.file, b.one, b.try = os.NewFile(uintptr(fd), "eventfd"), 1, b.write
	if b.raw, err = b.file.SyscallConn(); err != nil {
		_ = b.file.Close()
		return fmt.Errorf("create eventfd: %w", err)
	}
	return nil
}

// ring returns when the goroutines can run for which something had arrived.
func (b *bell) ring() {
	b.rang = false
	_ = b.raw.Read(b.try)
}

// write makes the descriptor readable in its first call, and returns true in its second.
func (b *bell) write(fd uintptr) bool {
	if b.rang {
		return true
	}
	b.rang = true
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&b.one)), unsafe.Sizeof(b.one)) //nolint:gosec // the kernel reads it
	return errno != 0
}

func (b *bell) close() {
	if b.file != nil {
		_ = b.file.Close()
	}
}
