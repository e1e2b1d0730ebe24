// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// at returns an instant this many ms after one in 2025, in ns.
func at(ms int64) int64 { return int64(1_750_000_000)*1e9 + ms*int64(time.Millisecond) }

func ref(trace, span uint64) mooncake.SpanRef {
	var r mooncake.SpanRef
	binary.BigEndian.PutUint64(r.TraceID[8:], trace)
	binary.BigEndian.PutUint64(r.SpanID[:], span)
	return r
}

func sid(span uint64) SpanID { return ref(0, span).SpanID }

func name(t testing.TB, s string) Name {
	t.Helper()
	n, err := ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func opt[T any](v T) mooncake.Opt[T] { return mooncake.Some(v) }

// journal returns a journal of records without a dictionary.
func journal(records ...Record) []byte {
	return framed(header, records...)
}

// framed returns a journal with the header of a version, whose records are not packed.
func framed(header string, records ...Record) []byte {
	b := []byte(header)
	for _, r := range records {
		b = appendPlain(b, AppendRecord(nil, r))
	}
	return b
}

// appendPlain appends a frame that needs no dictionary.
func appendPlain(dst, payload []byte) []byte {
	return appendFrame(dst, payload, checksum(0, payload))
}

// packed returns a journal of records, as a [Writer] makes it.
func packed(records ...Record) []byte {
	var b Batch
	for _, r := range records {
		if err := b.Add(r); err != nil {
			panic(err)
		}
	}
	return b.appendFrames([]byte(header), new(packer))
}

func equal(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, compareNames); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// message returns a message with records.
func message(t testing.TB, records ...Record) []byte {
	t.Helper()
	var b Batch
	for _, r := range records {
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return b.AppendMessage(nil)
}
