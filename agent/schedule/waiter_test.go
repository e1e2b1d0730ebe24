// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

func waiters(t *testing.T, clk clock.Clock) map[string]Waiter {
	t.Helper()
	ws := map[string]Waiter{"runtime": NewSleeper(clk)}
	for name, spin := range map[string]time.Duration{"kernel": Spin, "kernel without spinning": 0} {
		w, err := NewWaiter(clk, spin)
		if err != nil {
			t.Fatal(err)
		}
		ws[name] = w
	}
	t.Cleanup(func() {
		for _, w := range ws {
			w.Close()
		}
	})
	return ws
}

func TestWaiterNeverEarly(t *testing.T) {
	clk := clock.New()
	for name, w := range waiters(t, clk) {
		for _, d := range []time.Duration{-time.Second, 0, time.Microsecond, 20 * time.Microsecond, 31 * time.Microsecond, 3 * time.Millisecond} {
			until := clk.Now() + d
			if !w.Wait(until, nil) {
				t.Errorf("%s: a wait of %v ended early although nobody woke it", name, d)
			}
			if now := clk.Now(); now < until {
				t.Errorf("%s: a wait of %v ended %v early", name, d, until-now)
			}
		}
	}
}

func TestWaiterWake(t *testing.T) {
	clk := clock.New()
	for name, w := range waiters(t, clk) {
		// A wake before the wait is not lost.
		w.Wake()
		if w.Wait(Forever, nil) {
			t.Errorf("%s: Wait(Forever) claims to have reached it", name)
		}
		// Nor is a wake during the wait, and each wake ends only one wait.
		for range 100 {
			go w.Wake()
			if w.Wait(Forever, nil) {
				t.Errorf("%s: Wait(Forever) claims to have reached it", name)
			}
		}
		if !w.Wait(clk.Now()+100*time.Microsecond, nil) {
			t.Errorf("%s: a wake was seen twice", name)
		}
	}
}

func BenchmarkWaiterOvershoot(b *testing.B) {
	clk := clock.New()
	kernel, err := NewWaiter(clk, Spin)
	if err != nil {
		b.Fatal(err)
	}
	defer kernel.Close()
	for name, w := range map[string]Waiter{"kernel": kernel, "runtime": NewSleeper(clk)} {
		b.Run(name, func(b *testing.B) {
			var late time.Duration
			for b.Loop() {
				until := clk.Now() + 500*time.Microsecond
				w.Wait(until, nil)
				late += clk.Now() - until
			}
			b.ReportMetric(float64(late.Nanoseconds())/float64(b.N), "ns-late/op")
		})
	}
}
