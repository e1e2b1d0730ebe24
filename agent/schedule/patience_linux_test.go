// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moonloop/moonloop/agent/clock"
)

// onOneProcessor makes waits patient for the time of a test.
func onOneProcessor(t *testing.T) {
	t.Helper()
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

func calm() bool { return true }

// kernelWaiter returns a waiter that can be patient.
func kernelWaiter(t *testing.T, clk clock.Clock) Waiter {
	t.Helper()
	w, err := NewWaiter(clk, Spin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// ticks returns how often a goroutine was woken so far by a kernel timer that expires each 100 µs, as by a reply that arrives.
func ticks(t *testing.T) *atomic.Int64 {
	t.Helper()
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	each := unix.NsecToTimespec(int64(100 * time.Microsecond))
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: each, Value: each}, nil); err != nil {
		t.Fatal(err)
	}
	timer := os.NewFile(uintptr(fd), "timerfd")
	n, over := new(atomic.Int64), make(chan struct{})
	go func() {
		defer close(over)
		var count [8]byte
		for {
			if _, err := timer.Read(count[:]); err != nil {
				return
			}
			n.Add(1)
		}
	}()
	t.Cleanup(func() {
		_ = timer.Close()
		<-over
	})
	return n
}

// TestBellOnlyIfPatient: only a waiter that can be patient opens an eventfd.
func TestBellOnlyIfPatient(t *testing.T) {
	onOneProcessor(t)
	clk := clock.New()
	bells := func() (n int) {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range all {
			if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && to == "anon_inode:[eventfd]" {
				n++
			}
		}
		return n
	}
	kernelWaiter(t, clk) // the runtime's poller has an eventfd, too, from the first descriptor on
	for spin, want := range map[time.Duration]int{Spin: 1, 0: 0} {
		before := bells()
		w, err := NewWaiter(clk, spin)
		if err != nil {
			t.Fatal(err)
		}
		if got := bells() - before; got != want {
			t.Errorf("a waiter that spins for %v has opened %d eventfds, want %d", spin, got, want)
		}
		if w.Close(); bells() != before {
			t.Errorf("a waiter that spins for %v has left an eventfd open", spin)
		}
	}
}

// TestPatientWait: a patient wait is never early, and leaves other goroutines asleep, but not for long: in each wait that is longer than
// MaxUnread, they run.
func TestPatientWait(t *testing.T) {
	onOneProcessor(t)
	clk := clock.New()
	w, woken := kernelWaiter(t, clk), ticks(t)
	const waits = 50
	sum := func(calm func() bool) (n int64) {
		for range waits {
			until, before := clk.Now()+MaxUnread+pollPause, woken.Load()
			if !w.Wait(until, calm) {
				t.Fatal("a wait ended although nobody ended it")
			}
			if now := clk.Now(); now < until {
				t.Fatalf("a wait ended %v early", until-now)
			}
			n += woken.Load() - before
		}
		return n
	}
	var patient, ordinary int64
	for range 5 { // because a machine that is busy wakes nobody often
		patient, ordinary = sum(calm), sum(func() bool { return false })
		if waits <= patient && patient <= ordinary/2 {
			return
		}
	}
	t.Errorf("in %d waits each, another goroutine was woken %d times in patient ones, %d times in others; want at least once a wait, and at most half as often",
		waits, patient, ordinary)
}

// TestPatientWaitsSleep: a patient wait does not use the processor.
func TestPatientWaitsSleep(t *testing.T) {
	onOneProcessor(t)
	clk := clock.New()
	w := kernelWaiter(t, clk)
	var usage [2]unix.Rusage
	began := clk.Now()
	for i := range usage {
		if err := unix.Getrusage(unix.RUSAGE_SELF, &usage[i]); err != nil {
			t.Fatal(err)
		}
		for n := 0; i == 0 && n < 50; n++ {
			w.Wait(clk.Now()+MaxUnread+pollPause, calm)
		}
	}
	took := clk.Now() - began
	used := time.Duration(usage[1].Utime.Nano() + usage[1].Stime.Nano() - usage[0].Utime.Nano() - usage[0].Stime.Nano())
	if used > took/2 {
		t.Errorf("the process used %v of %v", used, took)
	}
}

// TestPatientWaitsInARow: other goroutines run also if each wait is shorter than the time between polls.
func TestPatientWaitsInARow(t *testing.T) {
	onOneProcessor(t)
	clk := clock.New()
	w, woken := kernelWaiter(t, clk), ticks(t)
	const waits, each = 250, 200 * time.Microsecond
	for range waits {
		w.Wait(clk.Now()+each, calm)
	}
	if n := woken.Load(); n < waits/8 { // the runtime's monitor thread alone would wake it each 10 ms, 5 times
		t.Errorf("another goroutine ran %d times in %d waits of %v", n, waits, each)
	}
}

// TestPatientWaitWakes: Wake ends a patient wait too.
func TestPatientWaitWakes(t *testing.T) {
	onOneProcessor(t)
	clk := clock.New()
	w := kernelWaiter(t, clk)
	for range 20 {
		go w.Wake()
		for began := clk.Now(); w.Wait(clk.Now()+longestPatience, calm); { // a machine that is busy may let the time pass first
			if clk.Now()-began > time.Minute {
				t.Fatal("Wake did not end a patient wait")
			}
		}
		if until := clk.Now() + 100*time.Microsecond; !w.Wait(until, calm) || clk.Now() < until {
			t.Fatal("a wake was seen twice")
		}
	}
}

// TestPatienceEnds: when something becomes busy, the rest of the wait is an ordinary one.
func TestPatienceEnds(t *testing.T) {
	onOneProcessor(t)
	clk := clock.New()
	w := kernelWaiter(t, clk)
	for range 10 { // a machine that is busy may not let it ask
		asked := 0
		if until := clk.Now() + longestPatience; !w.Wait(until, func() bool { asked++; return asked < 3 }) || clk.Now() < until {
			t.Fatal("the wait ended early")
		}
		if asked > 3 {
			t.Fatalf("the wait asked %d times whether it may be patient, want at most 3: then it may not", asked)
		}
		if asked == 3 {
			return
		}
	}
	t.Error("the wait did not ask until it may not be patient")
}

// TestOneProcessorOnly: with several processors, no wait is patient.
func TestOneProcessorOnly(t *testing.T) {
	before := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(before)
	clk := clock.New()
	w := kernelWaiter(t, clk)
	w.Wait(clk.Now()+longestPatience, func() bool {
		t.Error("a wait asked whether it may be patient")
		return true
	})
}

// TestFallenBehind: a schedule that has fallen behind lets other goroutines run, without which it could not catch up.
func TestFallenBehind(t *testing.T) {
	onOneProcessor(t)
	clk := clock.New()
	w, woken := kernelWaiter(t, clk), ticks(t)
	polls := 0
	for last := w.(*timerfd).polled; polls < 50; { // each of which comes 500 µs after the one before, or later
		if !w.Wait(clk.Now()-2*behind, nil) {
			t.Fatal("a wait for the past did not end at once")
		}
		if now := w.(*timerfd).polled; now != last {
			last = now
			polls++
		}
	}
	if n := woken.Load(); n < 25 {
		t.Errorf("another goroutine ran %d times in %d polls", n, polls)
	}
}

// TestLatenessEnds: after a wait that was on time, requests that a stall has made late go first again.
func TestLatenessEnds(t *testing.T) {
	onOneProcessor(t)
	clk := clock.New()
	w := kernelWaiter(t, clk).(*timerfd)
	w.Wait(clk.Now()-2*behind, nil)
	if w.late == 0 {
		t.Fatal("the schedule is not behind")
	}
	w.Wait(clk.Now()+longestPatience, nil)
	if w.late != 0 {
		t.Error("the schedule is still behind after a wait that was on time")
	}
}
