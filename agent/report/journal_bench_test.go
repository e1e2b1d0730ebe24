// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import "testing"

// BenchmarkJournalSent is what a request costs more for the note that it is about to go out.
func BenchmarkJournalSent(b *testing.B) {
	j, err := createJournal(b.TempDir(), Beginning{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := range b.N {
		j.Sent(int64(i), 1)
	}
	if err := j.Close(false); err != nil {
		b.Fatal(err)
	}
}
