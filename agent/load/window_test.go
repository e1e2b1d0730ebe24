// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// A window that is smaller than the look-ahead must not wait for the end of the trace, which may take hours to read.
func TestWindowDoesNotWaitForTheTrace(t *testing.T) {
	lines := []string{at(0), at(1), at(2)}
	for i := range 12 {
		lines = append(lines, at(float64(100+i)))
	}
	pipe := &silent{mooncake.NewReader(strings.NewReader(strings.Join(lines, "\n")), mooncake.ReaderOptions{}), make(chan struct{})}
	s, err := Open(pipe, Options{Lookahead: 8, End: 5 * ms})
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan int)
	go func() {
		n := 0
		for range 3 {
			if it, err := s.Next(); err == nil && it != nil {
				n++
			}
		}
		came <- n
	}()
	select {
	case n := <-came:
		if n != 3 {
			t.Errorf("%d rows of the window, want 3", n)
		}
		close(pipe.quit)
	case <-time.After(time.Minute):
		t.Error("the rows of the window wait for a trace that has not ended")
		close(pipe.quit)
		<-came
	}
	all, err := items(t, s)
	if c := s.Counts(); err != nil || len(all) != 0 || c.OutsideWindow != 12 {
		t.Errorf("%d further rows, error %v, counts %+v; want none, and 12 outside the window", len(all), err, c)
	}
	s.Close()
}
