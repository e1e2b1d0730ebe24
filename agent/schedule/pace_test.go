// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// TestPace: the mean gap decides, so bursts are as fast as the same requests at equal intervals.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		name  string
		gap   time.Duration
		burst int
		fast  bool
	}{
		{"5,000 a second", 200 * time.Microsecond, 1, true},
		{"5,000 a second in bursts of ten", 2 * time.Millisecond, 10, true},
		{"1,000 a second", time.Millisecond, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p pace
			if p.fast() {
				t.Error("fast before the first request")
			}
			for i := range 1000 {
				p.add(time.Duration(i/c.burst) * c.gap)
				if i == 0 && p.fast() {
					t.Error("fast after one request")
				}
			}
			if p.fast() != c.fast {
				t.Errorf("fast: %t, mean gap %v", p.fast(), p.mean)
			}
			for i := range 100 { // then one a second
				p.add(time.Duration(i+1) * time.Hour)
			}
			if p.fast() {
				t.Errorf("still fast, mean gap %v", p.mean)
			}
		})
	}
}

// patient notes whether waits may be patient.
type patient struct {
	Waiter
	may, all int
}

func (p *patient) Wait(until time.Duration, calm func() bool) bool {
	if p.all++; calm != nil {
		p.may++
	}
	return p.Waiter.Wait(until, nil)
}

// TestWhenWaitsArePatient: only in a fast schedule in which nothing waits for replies.
func TestWhenWaitsArePatient(t *testing.T) {
	for _, c := range []struct {
		name    string
		gap     time.Duration
		cfg     Config
		patient bool
	}{
		{"5,000 a second", 200 * time.Microsecond, Config{}, true},
		{"1,000 a second", time.Millisecond, Config{}, false},
		{"with slots", 200 * time.Microsecond, Config{Slots: 1000}, false},
		{"with slots for prefill", 200 * time.Microsecond, Config{PrefillSlots: 1000}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clk := clock.New()
				w := &patient{Waiter: NewSleeper(clk)}
				var s *Scheduler
				s, err := New(c.cfg, clk, w, Hooks{
					Calm: func() bool { return true },
					Fire: func(it *Item) {
						go func() {
							if c.cfg.PrefillSlots > 0 {
								s.FirstToken(it, clk.Now())
							}
							s.Done(it, clk.Now(), true)
						}()
					},
					Skip: func(*Item, Reason) {},
				})
				if err != nil {
					t.Fatal(err)
				}
				src := new(rows)
				for i := range 1000 {
					it := at(0, "")
					it.Offset = time.Duration(i) * c.gap
					src.items = append(src.items, it)
				}
				if _, err := s.Run(t.Context(), src); err != nil {
					t.Fatal(err)
				}
				switch {
				case !c.patient && w.may > 0:
					t.Errorf("%d of %d waits may be patient", w.may, w.all)
				case c.patient && w.may < w.all/2:
					t.Errorf("only %d of %d waits may be patient", w.may, w.all)
				}
			})
		})
	}
}
