// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// BenchmarkJournalSent measures the additional cost of the note that a request is about to be sent.
func BenchmarkJournalSent(b *testing.B) {
	j, err := createJournal(b.TempDir(), Beginning{})
	if err != nil {
		b.Fatal(err)
	}
	clk := clock.New()
	b.ReportAllocs()
	for i := range b.N {
		j.Sent(int64(i), clk.Now()+2*time.Millisecond, clk)
	}
	if err := j.Close(false); err != nil {
		b.Fatal(err)
	}
}
