// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"os"
	"testing"
)

// A batch is in the journal what its records would have been one by one.
func TestBatch(t *testing.T) {
	records := []Record{&Inference{Span: ref(1, 1), Start: at(0), End: at(100)}, &Link{Span: ref(2, 1)}, &Inference{Span: ref(1, 2), Parent: sid(1), Start: at(5), Prompt: Prompt{Identity: Engine, HashIDs: []uint64{1, 2, 3}, BlockSize: 512, Domain: 7}}, &Content{Span: ref(2, 3), Parent: sid(1)}}
	var b Batch
	for _, r := range records {
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	huge := &Inference{Span: ref(9, 9)}
	huge.HashIDs = make([]uint64, MaxRecord/8+1)
	huge.HashIDs[0] = 1 << 63
	if err := b.Add(huge); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a record that is too large: %v", err)
	}
	file := t.TempDir() + "/journal"
	w, err := OpenWriter(file, WriterOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.AppendBatch(&b), w.Close()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, r := range records {
		size += len(AppendRecord(nil, r))
	}
	want := packed(records...)
	if !bytes.Equal(got, want) || b.Len() != len(records) || b.Size() != size {
		t.Errorf("%d records, %d bytes, journal\n%x, want\n%x", b.Len(), b.Size(), got, want)
	}
}
