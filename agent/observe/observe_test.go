// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/schedule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

func TestExcused(t *testing.T) {
	m := &meter{}
	m.add(10*ms, 20*ms, 8*ms)
	m.add(30*ms, 35*ms, 3*ms)
	for _, tc := range []struct {
		name string
		a, b time.Duration
		want time.Duration
	}{
		{"before all", 0, 10 * ms, 0},
		{"between", 20 * ms, 30 * ms, 0},
		{"after all", 36 * ms, 90 * ms, 0},
		{"inside one", 12 * ms, 14 * ms, 2 * ms},
		{"across the start of one", 5 * ms, 12 * ms, 2 * ms},
		{"across both", 0, 100 * ms, 15 * ms},
		{"end of one to start of the next", 19 * ms, 31 * ms, 2 * ms},
		{"empty", 15 * ms, 15 * ms, 0},
		{"reversed: an early dispatch is not late", 15 * ms, 12 * ms, 0},
	} {
		if got := m.excused(tc.a, tc.b); got != tc.want {
			t.Errorf("%s: excused(%v, %v) = %v, want %v", tc.name, tc.a, tc.b, got, tc.want)
		}
	}
	if n, total, longest := m.sum(); n != 2 || total != 11*ms || longest != 8*ms {
		t.Errorf("sum = %d, %v, %v", n, total, longest)
	}
}

// However many hiccups there were, of which the older ones are dropped: the overlap is the sum of the overlaps with each one.
func TestExcusedIsSum(t *testing.T) {
	m := &meter{}
	random := rand.New(rand.NewPCG(1, 2))
	var at time.Duration
	for range maxHiccups + 100 {
		from := at + time.Duration(random.IntN(3))
		at = from + 1 + time.Duration(random.IntN(5))
		m.add(from, at, 1)
	}
	for range 100 {
		a := at - time.Duration(random.IntN(1000))
		b := a + time.Duration(random.IntN(500)-50)
		var want time.Duration
		for _, h := range m.spans {
			want += max(0, min(b, h.to)-max(a, h.from))
		}
		if got := m.excused(a, b); got != want {
			t.Fatalf("excused(%d, %d) = %d, want %d", a, b, got, want)
		}
	}
}

func TestMeterIsBounded(t *testing.T) {
	m := &meter{}
	for i := range time.Duration(3 * maxHiccups) {
		m.add(i*ms, i*ms+1, 1)
	}
	if len(m.spans) > maxHiccups {
		t.Errorf("%d hiccups kept, bound is %d", len(m.spans), maxHiccups)
	}
	if n, _, _ := m.sum(); n != 3*maxHiccups {
		t.Errorf("%d counted, want all %d", n, 3*maxHiccups)
	}
	if last := time.Duration(3*maxHiccups - 1); m.excused(last*ms, last*ms+5) != 1 {
		t.Error("the newest hiccup is gone")
	}
}

func TestObserver(t *testing.T) {
	clk := clock.New()
	o := Start(clk, schedule.NewSleeper(clk))
	runtime.GC()
	for burn := time.Now(); time.Since(burn) < 20*ms; { // CPU time is measured in coarse steps
	}
	m := o.Stop()
	if m.GCPauses == 0 || m.GCPauseMax <= 0 || m.GCPauseTime < m.GCPauseMax {
		t.Errorf("a collection left no pause: %+v", m)
	}
	if m.CPUKnown && (m.CPU <= 0 || m.CPUShare <= 0) {
		t.Errorf("no CPU time seen: %+v", m)
	}
	if m.Elapsed < 20*ms {
		t.Errorf("elapsed = %v", m.Elapsed)
	}
	if s := float64(m.HiccupTime) / float64(m.Elapsed); s < 0 || s > 1 {
		t.Errorf("hiccup share %v", s)
	}
}

func TestNilAndVirtual(t *testing.T) {
	var none *Observer
	if none.Excused(0, time.Hour) != 0 {
		t.Error("a nil observer excuses something")
	}
	if o := Start(clock.New(), nil); o.Excused(0, time.Hour) != 0 || o.Stop().Hiccups != 0 {
		t.Error("hiccups without a meter")
	}
}

func TestParseThrottled(t *testing.T) {
	for name, tc := range map[string]struct {
		stat string
		want time.Duration
		ok   bool
	}{
		"with a quota":    {"usage_usec 5\nnr_throttled 2\nthrottled_usec 1500\n", 1500 * time.Microsecond, true},
		"without a quota": {"usage_usec 5\nuser_usec 3\n", 0, false},
		"nonsense":        {"throttled_usec x\n", 0, false},
		"empty":           {"", 0, false},
	} {
		if got, ok := parseThrottled([]byte(tc.stat)); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
}
