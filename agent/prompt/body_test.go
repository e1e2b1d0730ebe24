// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"testing"
	"testing/iotest"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

func TestReadSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for name, o := range map[string]Options{
		"words":  {Model: "m", Seed: 9, BlockSize: 64, Overhead: 5},
		"tokens": {Model: "m", Seed: 9, BlockSize: 64, Endpoint: Completions, Form: Tokens},
	} {
		body := build(t, newBuilder(t, o), 3, lengthRow(300, 4, 1, 2, 3), nil).Request.Body
		want, err := io.ReadAll(iotest.OneByteReader(body.Open()))
		if err != nil {
			t.Fatal(err)
		}
		if err := iotest.TestReader(body.Open(), want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for size := 1; size < len(want)+2; size++ {
			if got := readBy(t, body.Open(), func() int { return size }); !bytes.Equal(got, want) {
				t.Fatalf("%s: reads of size %d return different bytes", name, size)
			}
		}
		for range 200 {
			if got := readBy(t, body.Open(), func() int { return rng.IntN(200) }); !bytes.Equal(got, want) {
				t.Fatalf("%s: reads of mixed sizes return different bytes", name)
			}
		}
	}
}

// readBy reads with buffers of the given sizes, and checks that each read fills its buffer or returns all that is left, and that Len counts
// down.
func readBy(tb testing.TB, r io.Reader, size func() int) (out []byte) {
	tb.Helper()
	length := r.(interface{ Len() int })
	for {
		before := length.Len()
		p := make([]byte, size())
		n, err := r.Read(p)
		out = append(out, p[:n]...)
		if length.Len() != before-n {
			tb.Fatalf("Len went from %d to %d in a read of %d", before, length.Len(), n)
		}
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			tb.Fatal(err)
		}
		if n != min(len(p), before) {
			tb.Fatalf("a read of %d with %d left gave %d", len(p), before, n)
		}
	}
}

func TestReadersAreApart(t *testing.T) {
	body := build(t, newBuilder(t, Options{}), 0, lengthRow(2000, 1, 1, 2, 3, 4), nil).Request.Body
	want, err := io.ReadAll(body.Open())
	if err != nil {
		t.Fatal(err)
	}
	a, b := body.Open(), body.Open()
	half := make([]byte, 777)
	if _, err := io.ReadFull(a, half); err != nil {
		t.Fatal(err)
	}
	whole, err := io.ReadAll(b) // a retry, while the first attempt's reader is half way
	if err != nil || !bytes.Equal(whole, want) {
		t.Errorf("the second reader returns different bytes: %v", err)
	}
	rest, err := io.ReadAll(a)
	if err != nil || !bytes.Equal(append(half, rest...), want) {
		t.Errorf("the first reader returns different bytes after the second: %v", err)
	}
	if _, ok := body.Open().(io.Seeker); ok {
		t.Error("the reader can seek: clients that retry would share it")
	}
}

func TestReadAllocates(t *testing.T) {
	body := build(t, newBuilder(t, Options{}), 0, lengthRow(12_000, 1, 1, 2, 3), nil).Request.Body
	buf := make([]byte, 32<<10)
	got := testing.AllocsPerRun(20, func() {
		r := body.Open()
		for {
			if _, err := r.Read(buf); err != nil {
				break
			}
		}
	})
	if got > 1 {
		t.Errorf("%v allocations to read a body of 24 blocks, want the reader's one", got)
	}
}

func TestPrivateIDs(t *testing.T) {
	seen := map[uint64]bool{}
	for row := range int64(1000) {
		for k := range int64(50) {
			id := privateID(row, k)
			if seen[id] {
				t.Fatalf("row %d, block %d: id %d again", row, k, id)
			}
			seen[id] = true
			if id < 1<<40 {
				t.Errorf("row %d, block %d: id %d lies among the small ids of traces", row, k, id)
			}
		}
	}
}

func FuzzBodyRead(f *testing.F) {
	f.Add(uint64(1), int64(700), uint16(64), uint16(2), []byte{7, 200, 1}, false)
	f.Add(uint64(2), int64(1), uint16(512), uint16(0), []byte{0, 1}, true)
	f.Fuzz(func(t *testing.T, seed uint64, length int64, block, ids uint16, sizes []byte, tokens bool) {
		o := Options{Seed: seed, BlockSize: 8 + int(block%1024)}
		if tokens {
			o.Endpoint, o.Form = Completions, Tokens
		}
		row := lengthRow(1+(length&0x3fff), 1)
		for i := range ids % 64 {
			row.HashIDs = append(row.HashIDs, seed+uint64(i))
		}
		p := build(t, newBuilder(t, o), length&0xffff, row, nil)
		want := read(t, p.Request)
		next, zeros := 0, 0
		got := readBy(t, p.Request.Body.Open(), func() int {
			if len(sizes) == 0 || zeros > 3 {
				return 1000
			}
			next++
			if n := int(sizes[next%len(sizes)]); n > 0 {
				return n
			}
			zeros++
			return 0
		})
		if !bytes.Equal(got, want) {
			t.Error("different reads return different bytes")
		}
		m := decoded(t, p.Request)
		if tokens {
			if n := len(m["prompt"].([]any)); int64(n) != p.Added {
				t.Errorf("%d token ids, want %d", n, p.Added)
			}
		} else if n := 5 * p.Added; int64(len(content(t, p.Request))) != n+int64(len(anchor)) {
			t.Errorf("%d bytes of text, want %d and the anchor", len(content(t, p.Request)), n)
		}
	})
}

func BenchmarkBodyRead(b *testing.B) {
	for name, o := range map[string]Options{
		"words":  {Overhead: 10},
		"tokens": {Endpoint: Completions, Form: Tokens},
	} {
		b.Run(name, func(b *testing.B) {
			row := benchRow()
			body := build(b, newBuilder(b, o), 0, row, nil).Request.Body
			buf := make([]byte, 32<<10) // what net/http copies with
			b.SetBytes(body.Size)
			b.ReportAllocs()
			for b.Loop() {
				r := body.Open()
				for {
					if _, err := r.Read(buf); err != nil {
						break
					}
				}
			}
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	builder, row := newBuilder(b, Options{Model: "model", Stream: true, Overhead: 10}), benchRow()
	b.ReportAllocs()
	for b.Loop() {
		build(b, builder, 0, row, nil)
	}
}

// benchRow returns a row as long as the mean of the public conversation trace.
func benchRow() *mooncake.Row {
	row := lengthRow(12_035, 343)
	for id := range uint64(24) {
		row.HashIDs = append(row.HashIDs, id)
	}
	return row
}

// TestManyRanges: the time for a body depends on the number of its parts plus that of its ranges, not on the product of the two.
func TestManyRanges(t *testing.T) {
	const n = 10000
	b, err := NewBuilder(Options{Form: Words, Endpoint: Chat, BlockSize: 512, FineBlockSize: 16})
	if err != nil {
		t.Fatal(err)
	}
	row := &mooncake.Row{InputLength: mooncake.Some[int64](16*n - 8)}
	for i := range uint64(n) {
		row.HashRanges = append(row.HashRanges, mooncake.HashRange{First: 2 * i, Count: 1})
	}
	took := func(live Live, enough time.Duration) time.Duration {
		p, err := b.BuildLive(n, row, live)
		if err != nil || p.NoRoom {
			t.Fatal(err, p.NoRoom)
		}
		least := time.Duration(math.MaxInt64)
		for i := 0; i < 3 || i < 20 && least > enough; i++ { // a busy machine takes longer, from time to time
			begin := time.Now()
			if _, err := io.Copy(io.Discard, p.Request.Body.Open()); err != nil {
				t.Fatal(err)
			}
			least = min(least, time.Since(begin))
		}
		return least
	}
	without := took(Live{}, math.MaxInt64)
	for i := range int64(n - 1) {
		row.Replies = append(row.Replies, mooncake.Reply{Back: i + 1, At: 16*i + 8, Tokens: 8})
	}
	with := took(Live{Replies: make([]Reply, n-1)}, 20*without)
	t.Logf("a body of %d ranges takes %v, with as many replies %v", n, without, with)
	if with > 20*without {
		t.Errorf("replies make a body %d times as slow", with/without)
	}
}
