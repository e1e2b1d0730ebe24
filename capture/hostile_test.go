// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// agreeing reads a trace as strictly as the reader can. It checks that an id identifies its block and all blocks before it, and that hash
// ids and ranges agree.
func agreeing(t *testing.T, what string, m memory, trace string) int {
	t.Helper()
	meta := m.meta(t, trace)
	in := mooncake.NewReader(bytes.NewReader(m[trace]), mooncake.ReaderOptions{
		Name: what, Strict: true, BlockSize: meta.BlockSize, FineBlockSize: meta.FineBlockSize,
	})
	parent, parents := map[uint64]uint64{}, map[uint64]uint64{}
	last, back := map[uint64]uint64{}, map[uint64]uint64{}
	follows := func(known map[uint64]uint64, ids []uint64, row int) {
		before := ^uint64(0)
		for _, id := range ids {
			if other, ok := known[id]; ok && other != before {
				t.Fatalf("%s, row %d: id %d follows %d and %d", what, row, id, other, before)
			}
			known[id], before = before, id
		}
	}
	for n := 0; ; n++ {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", what, err, bytes.Split(m[trace], []byte("\n"))[n])
		}
		for _, r := range row.Replies {
			if r.Back > int64(n) {
				t.Fatalf("%s, row %d: reply %+v", what, n, r)
			}
		}
		ids := fineIDs(row)
		follows(parents, row.HashIDs, n)
		follows(parent, ids, n)
		if len(ids) == 0 {
			continue
		}
		for i, id := range row.HashIDs {
			end := ids[min((i+1)*meta.BlockSize/meta.FineBlockSize, len(ids))-1]
			other, known := last[id]
			with, ended := back[end]
			if known && other != end || ended && with != id {
				t.Fatalf("%s, row %d, block %d: hash id %d and fine id %d belong to others: %d, %d", what, n, i, id, end, other, with)
			}
			last[id], back[end] = end, id
		}
	}
}

// hostileRecords returns requests whose senders lie: about what they share, and about their length and tokens.
func hostileRecords(t *testing.T, seed uint64, n int) []journal.Record {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	h := newHasher(t, blockhash.TextDomain)
	roles := [...]string{"system", "tools", "user", "assistant", "user", "assistant", "user", "tool", "other"}
	texts := [...]string{"", "a", "yes", newAuthor(seed).text(200), newAuthor(seed + 1).text(700), newAuthor(seed + 2).text(3000), string(bytes.Repeat([]byte{'x'}, 117))}
	models := [...]journal.Name{{}, name(t, "m"), name(t, "n")}
	var known []blockhash.End
	var before [][2]string
	var out []journal.Record
	for i := range n {
		p := journal.Prompt{Identity: journal.Text, Domain: 9, Key: 8}
		switch rng.IntN(4) {
		case 0: // nothing of it is true
			p.Chain.Bytes = rng.Int64N(6000) + 1
			for range p.Chain.Bytes / blockhash.CellSize {
				p.Chain.Cells = append(p.Chain.Cells, uint64(rng.IntN(2)))
			}
			for at := rng.Int64N(300); at <= p.Chain.Bytes; at += 1 + rng.Int64N([...]int64{2, 100, 1000}[rng.IntN(3)]) {
				e := blockhash.End{Bytes: max(at, 1), Role: blockhash.Role(rng.IntN(6)), Value: uint64(rng.IntN(3))}
				if len(p.Chain.Ends) > 0 && e.Bytes <= p.Chain.Ends[len(p.Chain.Ends)-1].Bytes || len(p.Chain.Ends) == blockhash.MaxEnds {
					continue
				}
				if e.Bytes%blockhash.CellSize == 0 {
					e.Value = p.Chain.Cells[e.Bytes/blockhash.CellSize-1]
				}
				p.Chain.Ends = append(p.Chain.Ends, e)
			}
			p.Chain.Tail = uint64(rng.IntN(3))
		default:
			messages := before
			if rng.IntN(3) == 0 || len(messages) > 12 {
				messages = nil
			}
			for range 1 + rng.IntN(4) {
				messages = append(slices.Clip(messages), [2]string{roles[min(len(messages)+rng.IntN(3), len(roles)-1)], texts[rng.IntN(len(texts))]})
			}
			before = messages
			h.Reset()
			for _, m := range messages {
				h.Role(m[0])
				h.Text(m[1])
			}
			p.Chain = h.Chain()
			p.Chain.Cells, p.Chain.Ends = slices.Clone(p.Chain.Cells), slices.Clone(p.Chain.Ends)
			reply := [2]string{"assistant", texts[rng.IntN(len(texts))]}
			h.Role(reply[0])
			h.Text(reply[1])
			if end, ok := h.End(); ok && rng.IntN(3) > 0 {
				p.Reply = end
				if rng.IntN(2) == 0 {
					before = append(slices.Clip(before), reply)
				}
			}
			if rng.IntN(10) == 0 {
				p.Chain.Ends = p.Chain.Ends[:rng.IntN(len(p.Chain.Ends)+1)]
			}
		}
		known = append(known, p.Chain.Ends...)
		if len(known) > 0 && rng.IntN(5) == 0 { // the reply is one that others, or the prompt itself, have
			p.Reply = blockhash.End{Bytes: p.Chain.Bytes + 11 + rng.Int64N(3)*rng.Int64N(2000), Role: blockhash.RoleAssistant, Value: known[rng.IntN(len(known))].Value}
		}
		p.Prefix = rng.IntN(12) == 0
		if cells := p.Chain.Bytes / blockhash.CellSize; rng.IntN(6) == 0 {
			p.MediaEnd = rng.Int64N(cells+1) * blockhash.CellSize
		}
		in := [...]int64{p.Chain.Bytes/4 + 1, p.Chain.Bytes/4 + 1, p.Chain.Bytes/4 + 1, 1, 16, 512, 1 + rng.Int64N(p.Chain.Bytes+1000), 0, 1 << 15}[rng.IntN(9)]
		r := call(uint64(i+1), 1, 0, int64(rng.IntN(n)), tokens(in, [...]int64{0, 1, 50, 700, 1 << 20}[rng.IntN(5)]))
		r.Prompt, r.Model = p, models[rng.IntN(3)]
		switch rng.IntN(8) {
		case 0:
			r.OutputTokens = mooncake.Opt[int64]{}
		case 1, 2, 3, 4, 5:
			r.CachedTokens = opt(rng.Int64N(in+2) / 16 * 16)
		}
		if rng.IntN(3) == 0 {
			r.Session = journal.Session(1 + rng.IntN(5))
		}
		out = append(out, r)
		if rng.IntN(20) == 0 { // the same instant and ids, but of another trace
			other := *r
			other.Joined = ref(uint64(n+i+1), 1)
			out = append(out, &other)
		}
	}
	return out
}

// TestHostileSharing: whatever senders say about their texts, the reader accepts the trace, an id identifies its block and all blocks
// before it, and the trace depends on neither the order of records nor the memory.
func TestHostileSharing(t *testing.T) {
	otherInput(t)
	seeds := repeated(uint64(6), 2)
	for seed := range seeds {
		records := hostileRecords(t, seed+1, 120)
		size := [...]int{512, 16, 32, 100}[seed%4]
		want, _ := compileBytes(t, Options{BlockSize: size}, journalOf(records...))
		rows := agreeing(t, production, want, production)
		if rows < 60 {
			t.Errorf("seed %d: %d rows", seed+1, rows)
		}
		rng := rand.New(rand.NewPCG(seed, 2))
		rng.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
		half := rng.IntN(len(records))
		got, _ := compileBytes(t, Options{BlockSize: size, Memory: 1 << 12}, journalOf(records[half:]...), journalOf(records[:half]...))
		for name, b := range want {
			if !bytes.Equal(b, got[name]) {
				t.Errorf("seed %d: %s differs", seed+1, name)
			}
		}
	}
}

// TestLyingLengths: requests whose texts have impossible lengths become rows all the same, and lose their cells, which is counted.
func TestLyingLengths(t *testing.T) {
	short := call(1, 1, 0, 1, tokens(1000, 1))
	short.Prompt = journal.Prompt{Identity: journal.Text, Domain: 9, Chain: blockhash.Chain{Bytes: 1}}
	for _, bytes := range []int64{1 << 28, 1 << 40, 1 << 62, 1<<63 - 1} {
		long := call(2, 1, 0, 2, tokens(5, 1))
		long.Prompt = journal.Prompt{Identity: journal.Text, Domain: 9, MediaEnd: blockhash.CellSize, Chain: blockhash.Chain{Bytes: bytes, Cells: make([]uint64, blockhash.MaxCells)}}
		m, res := compileBytes(t, Options{}, journalOf(short, long))
		equal(t, "a text that cannot be", bytes >= maxText, dropped(res.Traces[0].Meta.Dropped, lostCells) == 1)
		equal(t, "rows", 2, agreeing(t, production, m, production))
	}
}

// TestHostileRanges: values in a replay's spans that no row can have are left out of the trace, and counted.
func TestHostileRanges(t *testing.T) {
	otherInput(t)
	for _, c := range []struct {
		why     string
		tokens  int64
		ids     []uint64
		ranges  []mooncake.HashRange
		replies []mooncake.Reply
	}{
		{"a count that is too large", 1 << 28, nil, []mooncake.HashRange{{First: 0, Count: 1 << 60}}, nil},
		{"ids beyond 2^64", 64, []uint64{0}, []mooncake.HashRange{{First: 1<<64 - 2, Count: 4}}, nil},
		{"an id twice", 64, []uint64{0}, []mooncake.HashRange{{First: 3, Count: 2}, {First: 4, Count: 2}}, nil},
		{"an empty range", 64, []uint64{0}, []mooncake.HashRange{{First: 3, Count: 0}, {First: 4, Count: 4}}, nil},
		{"too few hash ids", 1024, []uint64{0}, []mooncake.HashRange{{First: 0, Count: 64}}, nil},
		{"a reply at the beginning", 64, []uint64{0}, []mooncake.HashRange{{First: 1, Count: 4}}, []mooncake.Reply{{Back: 1, At: 0, Tokens: 5}}},
		{"an empty reply", 64, []uint64{0}, []mooncake.HashRange{{First: 1, Count: 4}}, []mooncake.Reply{{Back: 1, At: 5, Tokens: 0}}},
		{"a reply that reaches the end", 64, []uint64{0}, []mooncake.HashRange{{First: 1, Count: 4}}, []mooncake.Reply{{Back: 1, At: 5, Tokens: 59}}},
		{"overlapping replies", 64, []uint64{0}, []mooncake.HashRange{{First: 1, Count: 4}}, []mooncake.Reply{{Back: 1, At: 5, Tokens: 9}, {Back: 1, At: 13, Tokens: 9}}},
		{"a reply to the row itself", 64, []uint64{0}, []mooncake.HashRange{{First: 1, Count: 4}}, []mooncake.Reply{{Back: 0, At: 5, Tokens: 9}}},
		{"a reply to no row", 64, []uint64{0}, []mooncake.HashRange{{First: 1, Count: 4}}, []mooncake.Reply{{Back: 1 << 62, At: 5, Tokens: 9}}},
	} {
		first := replayed(t, "r", 0, 1, 1, 0, 9)
		first.InputLength, first.FineBlockSize, first.HashRanges = opt[int64](16), 16, []mooncake.HashRange{{First: 70, Count: 1}}
		second := replayed(t, "r", 1, 2, 1, 0, c.ids...)
		second.InputLength, second.FineBlockSize, second.HashRanges, second.Replies = opt(c.tokens), 16, c.ranges, c.replies
		if c.ids == nil {
			second.HashIDs = make([]uint64, c.tokens/512)
			for i := range second.HashIDs {
				second.HashIDs[i] = uint64(i)
			}
		}
		m, res := compileBytes(t, Options{}, journalOf(first, second))
		rows := m.rows(t, "run r")
		equal(t, c.why+": rows", 2, len(rows))
		lost := dropped(res.Traces[0].Meta.Dropped, lostRanges) + dropped(res.Traces[0].Meta.Dropped, lostReply)
		equal(t, c.why+": replies", 0, len(rows[1].Replies))
		if lost == 0 {
			t.Errorf("%s: nothing is counted", c.why)
		}
	}
}

// TestTwins: two requests that began at one instant under one span, one joined to its client and one not, are two rows, even if the
// engine's order is followed.
func TestTwins(t *testing.T) {
	otherInput(t)
	for _, every := range []int{12, 50} {
		records, _ := productionOf(t, newHasher(t, blockhash.TextDomain), conversations(16, 30), 16, movedLast("system"))
		ofModel(t, records, "m", 1)
		for i, r := range slices.Clone(records) {
			if other := *r.(*journal.Inference); i%every == 4 && i+5 < len(records) {
				// Of another prompt, whose cached tokens are not reported.
				of := records[i+5].(*journal.Inference)
				other.Prompt, other.InputTokens, other.OutputTokens, other.CachedTokens = of.Prompt, of.InputTokens, of.OutputTokens, mooncake.Opt[int64]{}
				other.Joined = ref(uint64(9000+i), 1)
				records = append(records, &other)
			}
		}
		m, res := compileBytes(t, Options{}, journalOf(records...))
		followed := res.Traces[0].Meta.Transformations[0].Parameters["prompt_order"] != nil
		equal(t, "the engine is followed where twins are few", every == 50, followed)
		equal(t, "rows", len(records), agreeing(t, production, m, production))
	}
}

// TestCutRanges: rows whose ranges would be cut into as many ranges as there were earlier rows lose their ranges, so that the trace does not
// grow with the square of the number of rows.
func TestCutRanges(t *testing.T) {
	otherInput(t)
	const n = 1600
	var records []journal.Record
	add := func(tokens int64, h mooncake.HashRange) {
		i := int64(len(records))
		r := replayed(t, "r", i, uint64(i+1), 1, 0, make([]uint64, mooncake.BlockCount(tokens, 512))...)
		for at := range r.HashIDs {
			r.HashIDs[at] = uint64(i)<<32 + uint64(at)
		}
		r.InputLength, r.FineBlockSize, r.HashRanges = opt(tokens), 16, []mooncake.HashRange{h}
		records = append(records, r)
	}
	for i := range uint64(n) {
		add(16, mooncake.HashRange{First: i * 7919 % n, Count: 1})
	}
	for range n {
		add(16*n, mooncake.HashRange{First: 0, Count: n})
	}
	var s rowsOnly
	res, err := Compile(t.Context(), Options{TempDir: t.TempDir()}, s.sink, buffer("test", journalOf(records...)))
	if err != nil {
		t.Fatal(err)
	}
	ranges := 0
	for _, row := range s.rows {
		ranges += len(row.HashRanges)
	}
	lost := dropped(res.Traces[0].Meta.Dropped, lostRanges)
	if equal(t, "rows", 2*n, len(s.rows)); ranges > 1<<20+32*2*n || lost == 0 {
		t.Errorf("%d rows have %d ranges, and %d rows lost theirs", 2*n, ranges, lost)
	}
}

// TestForeignEnds: ends that do not fit the text of their record remove its identity, as cells do.
func TestForeignEnds(t *testing.T) {
	good := call(1, 2, 0, 0, func(r *journal.Inference) {
		r.Prompt = journal.Prompt{Identity: journal.Text, Domain: 9, Chain: chain(t, "hello")}
		r.Reply = blockhash.End{Bytes: r.Chain.Bytes + 20, Role: blockhash.RoleAssistant, Value: 5}
	})
	m, _ := compileBytes(t, Options{}, journalOf(good))
	equal(t, "cells lost of a sound record", int64(0), dropped(m.meta(t, production).Dropped, lostCells))
	for what, change := range map[string]func(*journal.Prompt){
		"ends beyond the text":            func(p *journal.Prompt) { p.Chain.Ends[0].Bytes = p.Chain.Bytes + 1 },
		"a reply of the user":             func(p *journal.Prompt) { p.Reply.Role = blockhash.RoleUser },
		"a reply that is not long enough": func(p *journal.Prompt) { p.Reply.Bytes = p.Chain.Bytes + 1 },
	} {
		bad := *good
		bad.Chain.Ends = slices.Clone(good.Chain.Ends)
		change(&bad.Prompt)
		m, _ := compileBytes(t, Options{}, journalOf(&bad))
		equal(t, what, int64(1), dropped(m.meta(t, production).Dropped, lostCells))
	}
}

// TestCompileOldJournals compiles journals that were written before records had the fields that come last.
func TestCompileOldJournals(t *testing.T) {
	for _, file := range []string{"before-shapes.journal", "before-ends.journal"} {
		b, err := os.ReadFile(filepath.Join("journal", "testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		if _, res := compileBytes(t, Options{}, b); res.Inferences == 0 || res.DamageCount != 0 {
			t.Errorf("%s: %+v", file, res)
		}
	}
}

// TestManyDomains: a sender may give each prompt another hash domain and key. The sidecar lists the first ones, so that it can be read.
func TestManyDomains(t *testing.T) {
	const rows = maxDomains + 100
	var records []journal.Record
	for i := range uint64(rows) {
		records = append(records, call(i+1, 1, 0, int64(i), engine(1, 2), func(r *journal.Inference) {
			r.Domain, r.Key = journal.Domain(i+1), journal.Domain(i+1)
		}))
	}
	m, res := compileBytes(t, Options{}, journalOf(records...))
	meta := m.meta(t, production)
	equal(t, "rows, listed domains and keys", []int{rows, maxDomains, maxDomains}, []int{int(meta.Rows), len(meta.HashDomains), len(meta.HashKeys)})
	equal(t, "not listed", int64(2*100), dropped(res.Traces[0].Meta.Dropped, lostDomain))
}
