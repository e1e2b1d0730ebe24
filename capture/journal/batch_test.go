// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
)

// A batch in a journal is the same as its records one by one.
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

// listed returns a batch of records with all kinds of lists, and of one without a list.
func listed(t *testing.T) *Batch {
	t.Helper()
	chain := blockhash.Chain{Cells: []uint64{5, 6}, Bytes: 2 * blockhash.CellSize, Ends: []blockhash.End{{Bytes: 100, Value: 9}}}
	b := new(Batch)
	for _, r := range []Record{
		&Link{Span: ref(2, 1)},
		&Inference{Span: ref(1, 2), Prompt: Prompt{Identity: Engine, HashIDs: []uint64{1, 2, 3}, BlockSize: 512, Domain: 7}},
		&Content{Span: ref(2, 3), Parent: sid(1), Prompt: Prompt{Identity: Text, Domain: 7, Chain: chain}},
		&Inference{Span: ref(1, 4), Prompt: Prompt{Identity: Engine, HashIDs: []uint64{1, 2, 3, 4}, BlockSize: 512, Domain: 7}},
	} {
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// framesOf returns the bytes of a batch in a journal.
func framesOf(b *Batch) []byte { return b.appendFrames(nil, new(packer)) }

// What a queue has stored becomes the same in the journal as without a queue. Anything else is refused.
func TestBatchStored(t *testing.T) {
	for _, b := range []*Batch{new(Batch), listed(t)} {
		stored := b.AppendTo(nil)
		if len(stored) > b.EncodedSize() {
			t.Errorf("%d bytes, at most %d expected", len(stored), b.EncodedSize())
		}
		got := listed(t) // is replaced
		if err := got.UnmarshalFrom(stored); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(framesOf(got), framesOf(b)) || got.Len() != b.Len() || got.Size() != b.Size() {
			t.Errorf("%d records of %d bytes became %d of %d", b.Len(), b.Size(), got.Len(), got.Size())
		}
		for n := range stored {
			if err := got.UnmarshalFrom(stored[:n]); err == nil || got.Len() > 0 || got.Size() > 0 {
				t.Fatalf("the first %d bytes of %d: %v, %d records", n, len(stored), err, got.Len())
			}
		}
		if err := got.UnmarshalFrom(append(stored, 0)); err == nil {
			t.Error("a byte too many was accepted")
		}
	}
}

// Parts of a batch are the same as in the whole batch.
func TestBatchParts(t *testing.T) {
	whole := listed(t)
	for cut := range whole.Len() + 1 {
		head, tail := listed(t), new(Batch)
		tail.AddFrom(whole, cut, whole.Len())
		head.Truncate(cut)
		size := 0
		for i := range cut {
			size += head.RecordSize(i)
		}
		if head.Len() != cut || head.Size() != size || tail.Len() != whole.Len()-cut {
			t.Fatalf("cut %d: %d records of %d bytes, and %d", cut, head.Len(), head.Size(), tail.Len())
		}
		head.AddFrom(tail, 0, tail.Len())
		if !bytes.Equal(framesOf(head), framesOf(whole)) {
			t.Errorf("cut %d: its parts are not the whole", cut)
		}
	}
}
