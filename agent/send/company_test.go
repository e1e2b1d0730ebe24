// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"testing"
	"testing/synctest"
)

// A context stops its own exchanges, all of them, and no others.
func TestCompany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c company
		over := func(f *flight) bool { return f.over(t.Context()) != nil }
		one, cancelOne := context.WithCancel(t.Context())
		two, cancelTwo := context.WithCancel(t.Context())
		defer cancelTwo()
		a, b, later, other := new(flight), new(flight), new(flight), new(flight)
		if !c.join(one, a) || !c.join(one, b) || c.join(two, other) {
			t.Fatal("the exchanges of one context were not joined, or one of another context was")
		}
		if !c.part(a) {
			t.Error("an exchange that has ended counts as stopped")
		}
		cancelOne()
		synctest.Wait()
		if over(a) || !over(b) || c.part(b) {
			t.Errorf("stopped: %v, %v, want false, true", over(a), over(b))
		}
		c.join(one, later)
		synctest.Wait()
		if !over(later) {
			t.Error("an exchange was not stopped, although its context had ended before it joined")
		}
		if !c.join(two, other) {
			t.Error("an exchange was refused because of another context, whose exchanges have ended")
		}
		synctest.Wait()
		if over(other) || !c.part(other) {
			t.Error("an exchange was stopped by a context that is not its own")
		}
		c.close()
		cancelTwo()
		synctest.Wait()
		if over(other) {
			t.Error("a context that was forgotten stops an exchange")
		}
	})
}
