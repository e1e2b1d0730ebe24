// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/capture/journal"
)

// TestPacked: the traces are the same bytes, whether the journals have each value once or repeat it in each record, and whether they come
// from writers or from messages.
func TestPacked(t *testing.T) {
	records := traffic(t, 600)
	want, wantResult := compileBytes(t, Options{}, journalOf(records...))
	file := filepath.Join(t.TempDir(), "j")
	w, err := journal.OpenWriter(file, journal.WriterOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	var messages []byte
	for part := range slices.Chunk(records, 50) {
		var b journal.Batch
		for _, r := range part {
			if err := b.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		messages = b.AppendMessage(messages)
		if err := w.AppendBatch(&b); err != nil {
			t.Fatal(err)
		}
	}
	packed, err := os.ReadFile(file)
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	if plain := journalOf(records...); len(packed) > len(plain)/2 {
		t.Errorf("%d bytes of %d: too many to show anything", len(packed), len(plain))
	}
	for what, b := range map[string][]byte{"journal": packed, "messages": messages} {
		got, result := compileBytes(t, Options{}, b)
		if len(got) != len(want) {
			t.Fatalf("%s: %d traces and sidecars, want %d", what, len(got), len(want))
		}
		for name := range want {
			if !bytes.Equal(want[name], got[name]) {
				t.Errorf("%s: %s differs", what, name)
			}
		}
		if diff := cmp.Diff(wantResult, result, compareNames); diff != "" {
			t.Errorf("%s: result (-want +got):\n%s", what, diff)
		}
	}
}
