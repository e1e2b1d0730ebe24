// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowUploadsYield: if there is no room, the slowest uploads lose theirs, as many as necessary and no more. Uploads that are fast
// enough, complete or have just begun keep it.
func TestSlowUploadsYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stopped []string
		g := NewGate(Options{Limit: 600, Refused: func(Reason) { t.Error("the gate counted a refusal, but only its servers should") }})
		coming := func(name string, room, got int64) *upload {
			u := g.begin(func() { stopped = append(stopped, name) })
			if err := u.reserve(room); err != nil {
				t.Fatal(name, err)
			}
			u.got.Store(got)
			return u
		}
		expect := func(u *upload, bytes int64, want *refusal, victims ...string) {
			t.Helper()
			if err := u.reserve(bytes); err != want {
				t.Errorf("room for %d bytes: %v, want %v", bytes, err, want)
			}
			if !slices.Equal(stopped, victims) {
				t.Errorf("stopped %q, want %q", stopped, victims)
			}
		}
		whole := coming("whole", 100, 0)
		if err := whole.received(); err != nil {
			t.Fatal(err)
		}
		slower := coming("slower", 100, 0)
		slow := coming("slow", 100, slowRate/2)
		fast := coming("fast", 100, 100*slowRate)
		empty := g.begin(func() { stopped = append(stopped, "empty") })
		time.Sleep(slowAfter + time.Second)
		fresh := coming("fresh", 200, 0)

		asks := g.begin(func() {})
		expect(asks, 601, errTooLarge)
		expect(asks, 201, errBusy) // the two slow ones together hold only 200
		expect(asks, 100, errBusy) // there is no new search at once
		time.Sleep(lookAgain)
		expect(asks, 100, nil, "slower")
		expect(asks, 100, nil, "slower", "slow")
		expect(asks, 1, errBusy, "slower", "slow")
		if err := slower.reserve(1); err != errSlow {
			t.Errorf("an upload that was stopped takes room: %v", err)
		}
		if err := slow.received(); err != errSlow {
			t.Errorf("an upload that was stopped is whole: %v", err)
		}
		slow.release(50)
		for _, u := range []*upload{whole, slower, slow, fast, fresh, empty, asks, asks} {
			u.free()
		}
		if g.used != 0 || len(g.uploads) != 0 {
			t.Errorf("%d bytes of %d uploads are held in the end", g.used, len(g.uploads))
		}
	})
}

// TestUploadsOfAStoppedGate: a stopped gate ends uploads, and accepts no more.
func TestUploadsOfAStoppedGate(t *testing.T) {
	g := NewGate(Options{Limit: 100})
	stopped := 0
	u := g.begin(func() { stopped++ })
	if err := u.reserve(60); err != nil {
		t.Fatal(err)
	}
	if err := g.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := g.begin(func() { stopped++ })
	if a, b := u.reserve(1), late.reserve(1); a != errStopping || b != errStopping || stopped != 2 || g.used != 0 {
		t.Errorf("refusals %v and %v, %d stopped, %d bytes held; want both stopped and nothing held", a, b, stopped, g.used)
	}
}

// TestNoStopAfterTheEnd: the function that ends the reading of a request belongs to its server, and must not be called once the server has
// moved on: an upload may lose its room at the moment at which its handler returns.
func TestNoStopAfterTheEnd(t *testing.T) {
	g := NewGate(Options{Limit: 100})
	stopped := 0
	early, late := g.begin(func() { stopped++ }), g.begin(func() { stopped += 10 })
	g.mu.Lock()
	g.end(early, errSlow)
	g.end(late, errSlow)
	halting := g.halting
	g.halting = nil
	g.mu.Unlock()
	late.detach()
	for _, u := range halting {
		u.halt()
	}
	if stopped != 1 {
		t.Errorf("stopped %d, want only the upload whose handler has not returned", stopped)
	}
}
