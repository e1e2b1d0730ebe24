// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
)

// tree makes prompts that share their beginnings, as those of conversations do. A value identifies all that is before it, too.
type tree struct {
	rng   *rand.Rand
	paths [][]uint64
}

// next returns a prompt: the beginning of an earlier one, and new values.
func (t *tree) next(longest int) []uint64 {
	var path []uint64
	if n := len(t.paths); n > 0 && t.rng.IntN(8) > 0 {
		before := t.paths[t.rng.IntN(n)]
		path = slices.Clone(before[:t.rng.IntN(len(before)+1)])
	}
	for n := 1 + t.rng.IntN(longest); n > 0; n-- {
		path = append(path, t.rng.Uint64())
	}
	t.paths = append(t.paths, path)
	return path
}

// prompts returns records of all kinds, whose prompts share beginnings.
func prompts(n, longest int) []Record {
	trees := [3]tree{{rng: rand.New(rand.NewPCG(1, 2))}, {rng: rand.New(rand.NewPCG(3, 4))}, {rng: rand.New(rand.NewPCG(5, 6))}}
	var records []Record
	for i := range uint64(n) {
		text := Prompt{Identity: Text, Domain: 3, Chain: blockhash.Chain{Cells: trees[1].next(longest), Tail: i}}
		text.Chain.Bytes = int64(len(text.Chain.Cells)) * blockhash.CellSize
		for k, v := range trees[2].next(1 + longest/16) {
			text.Chain.Ends = append(text.Chain.Ends, blockhash.End{Bytes: int64(k+1) * 7, Role: blockhash.Role(k % 3), Value: v})
		}
		switch i % 4 {
		case 0, 1:
			records = append(records, &Inference{Span: ref(i+1, 1), Start: at(int64(i)), Prompt: Prompt{Identity: Engine, HashIDs: trees[0].next(longest), BlockSize: 16, Domain: 7, Key: 9}, Finish: Name{"stop"}})
		case 2:
			records = append(records, &Inference{Span: ref(i+1, 1), Start: at(int64(i)), Prompt: text})
		case 3:
			records = append(records, &Content{Span: ref(i+1, 2), Parent: sid(1), Prompt: text}, &Link{Span: ref(i+1, 3), Session: Session(i)})
		}
	}
	return records
}

// dictionaries returns the positions of the records in a journal that begin a dictionary.
func dictionaries(t testing.TB, b []byte) (at []int) {
	t.Helper()
	offset := len(header)
	for frame := range bytes.SplitAfterSeq(b[len(header):], []byte{0}) {
		if len(frame) > 0 {
			if payload, _, ok := openFrame(bytes.Clone(frame[:len(frame)-1])); ok && begins(payload) {
				at = append(at, offset)
			}
		}
		offset += len(frame)
	}
	return at
}

// TestDictionary: packed records are read as the bytes that they would be without a dictionary, over several dictionaries, and shared
// values occur once.
func TestDictionary(t *testing.T) {
	records := prompts(1000, 6000)
	b := packed(records...)
	if n := len(dictionaries(t, b)); n < 3 {
		t.Fatalf("%d dictionaries: too few to show anything", n)
	}
	r := NewReader("j", bytes.NewReader(b))
	for i, want := range records {
		got, d, err := r.NextEncoded()
		if err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		if plain := AppendRecord(nil, want); !bytes.Equal(plain, got) {
			t.Fatalf("record %d is read as\n%x, want\n%x", i, got, plain)
		}
		var again Decoder
		if err := again.Decode(got); err != nil || again.Fields != d.Fields {
			t.Fatalf("record %d: %d fields, without a dictionary %d: %v", i, d.Fields, again.Fields, err)
		}
	}
	if _, _, err := r.NextEncoded(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}

	once := prompts(400, 100)
	values := map[uint64]bool{}
	rest := 0 // what the records take without values
	for _, r := range once {
		e := r.appendTo(nil)
		rest += len(e.b) + 6
		for _, prompt := range promptsOf(r) {
			rest -= 8 * len(prompt)
			for _, v := range prompt {
				values[v] = true
			}
		}
	}
	// A repeated stretch takes up to 5 additional bytes, and a prompt has few of them.
	if size, want := len(packed(once...)), rest+8*len(values); size < want-rest/10 || size > want+30*len(once) {
		t.Errorf("%d bytes, want about %d: those of %d values, once each, and of what else the records have", size, want, len(values))
	}
}

// promptsOf returns the lists of a record.
func promptsOf(r Record) [][]uint64 {
	var p *Prompt
	switch r := r.(type) {
	case *Inference:
		p = &r.Prompt
	case *Content:
		p = &r.Prompt
	default:
		return nil
	}
	var ends []uint64
	for _, e := range p.Chain.Ends {
		ends = append(ends, e.Value)
	}
	return [][]uint64{p.HashIDs, p.Chain.Cells, ends}
}

// TestDictionaryDamage changes and removes records of a journal. A record is read if and only if it is whole, and so are the start of its
// dictionary and the records with its values.
func TestDictionaryDamage(t *testing.T) {
	records := prompts(60, 40)
	whole := packed(records...)
	more := prompts(90, 40)[len(records):]
	whole = append(whole, packed(more...)[len(header):]...) // as after a new start of the writer
	records = append(records, more...)
	frames := bytes.SplitAfter(whole[len(header):], []byte{0})
	frames = frames[:len(records)]
	needs := make([][]int, len(records)) // records that each one needs
	known, owner := -1, map[uint64]int{}
	for i, r := range records {
		if payload, _, _ := openFrame(bytes.Clone(frames[i][:len(frames[i])-1])); begins(payload) {
			known, owner = i, map[uint64]int{}
		}
		need := map[int]bool{}
		for _, list := range promptsOf(r) {
			need[known] = true
			for _, v := range list {
				if _, there := owner[v]; !there {
					owner[v] = i
				}
				need[owner[v]] = true
			}
		}
		needs[i] = slices.Collect(maps.Keys(need))
	}
	plain := map[string]int{}
	for i, r := range records {
		plain[string(AppendRecord(nil, r))] = i
	}
	rng := rand.New(rand.NewPCG(8, 9))
	for round := range 400 {
		bad := map[int]bool{}
		b := []byte(header)
		for i, frame := range frames {
			if rng.IntN(20) > 0 {
				b = append(b, frame...)
				continue
			}
			bad[i] = true
			if changed := bytes.Clone(frame); rng.IntN(2) == 0 {
				changed[rng.IntN(len(changed)-1)] ^= byte(1 + rng.IntN(255))
				b = append(b, changed...)
			}
		}
		var want, got []int
		for i := range records {
			if !bad[i] && !slices.ContainsFunc(needs[i], func(n int) bool { return bad[n] }) {
				want = append(want, i)
			}
		}
		read, _, _ := readAll(t, b)
		for _, r := range read {
			i, ok := plain[string(AppendRecord(nil, r))]
			if !ok {
				t.Fatalf("round %d: a record that was never written: %+v", round, r)
			}
			got = append(got, i)
		}
		if !slices.Equal(want, got) {
			t.Fatalf("round %d: damaged are %v, read are %v, want %v", round, slices.Sorted(maps.Keys(bad)), got, want)
		}
	}
}

// TestReaderAt: from each position of a journal, the rest is read as from the beginning, whatever dictionary it needs.
func TestReaderAt(t *testing.T) {
	records := prompts(20, 30)
	b := packed(records...)
	for _, part := range [][]Record{records[:10], prompts(30, 30)[20:]} {
		b = append(b, packed(part...)[len(header):]...)
		records = append(records, part...)
	}
	file := bytes.NewReader(b)
	r := NewReaderAt("j", file, int64(len(b)), Place{})
	for i := 0; ; i++ {
		at := r.Place()
		rest, _, _ := drain(t, NewReaderAt("j", file, int64(len(b)), at))
		same(t, fmt.Sprint("records from ", i), append([]Record{}, records[i:]...), append([]Record{}, rest...))
		// A position without a dictionary is before the first one; then everything is read.
		rest, _, _ = drain(t, NewReaderAt("j", file, int64(len(b)), Place{Offset: at.Offset, Dictionary: HeaderSize}))
		same(t, fmt.Sprint("records from ", i), append([]Record{}, records[i:]...), append([]Record{}, rest...))
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	// Damage before the position is not reported again.
	broken := bytes.Clone(b)
	broken[len(header)+50] ^= 1
	last := dictionaries(t, b)[2]
	rest, damage, torn := drain(t, NewReaderAt("j", bytes.NewReader(broken), int64(len(b)), Place{Offset: int64(last), Dictionary: HeaderSize}))
	want, _, _ := readAll(t, append([]byte(header), b[last:]...))
	same(t, "records", want, rest)
	if damage != nil || torn != (Torn{}) {
		t.Errorf("damage %v, torn %v", damage, torn)
	}
}

// TestOldJournalGoesOn: a journal of version 1 keeps its version when it is continued, so that the program that began it can read it.
func TestOldJournalGoesOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "j")
	if err := os.WriteFile(file, framed(header1, some(t)...), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := OpenWriter(file, WriterOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Append(some(t)...), w.Close()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "journal", append(appendMark(append(framed(header1, some(t)...), 0), kindResume), framed("", some(t)...)...), got)
	records, damage, torn := readAll(t, got)
	same(t, "records", append(some(t), some(t)...), records)
	if damage != nil || torn != (Torn{}) {
		t.Errorf("damage %v, torn %v", damage, torn)
	}
	var r MessageReader
	if records, err = readMessage(&r, appendMark(append([]byte(header1), append([]byte{0}, framed("", some(t)...)...)...), kindEnd)); err != nil {
		t.Fatal(err)
	}
	same(t, "message of version 1", some(t), records)
}

// TestNewDictionaryAfterFailure: a write that failed may have lost values, so the next one does not use them.
func TestNewDictionaryAfterFailure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "j")
	w, err := OpenWriter(file, WriterOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	records := prompts(12, 20)
	if err := w.Append(records[:4]...); err != nil {
		t.Fatal(err)
	}
	good := w.file
	if w.file, err = os.Open(file); err != nil { // cannot be written
		t.Fatal(err)
	}
	if err := w.Append(records[4:8]...); err == nil {
		t.Fatal("a write to a read-only file succeeded")
	}
	_ = w.file.Close()
	w.file = good
	if err := errors.Join(w.Append(records[4:]...), w.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, damage, _ := readAll(t, b)
	same(t, "records", records, got)
	equal(t, "damage", 0, len(damage))
}

// TestHostileDictionary: a record that refers to values that do not exist, or to too many, is damaged. It costs at most the memory of the
// largest record and the largest dictionary.
func TestHostileDictionary(t *testing.T) {
	head := append([]byte{byte(KindInference | packedBit)}, AppendRecord(nil, &Inference{Span: ref(1, 1)})[1:]...)
	u := func(n ...uint64) (b []byte) {
		for _, v := range n {
			b = binary.AppendUvarint(b, v)
		}
		return b
	}
	list := func(n uint64, width byte, pieces ...[]byte) []byte {
		return slices.Concat([]byte{tagHashIDs}, u(n), []byte{width}, slices.Concat(pieces...))
	}
	same := func(count uint64, distance int64) []byte { return binary.AppendVarint(u(count<<1), distance) }
	added := func(count uint64, values string) []byte { return append(u(count<<1|1), values...) }
	begin := slices.Concat(head, u(0, 0), list(2, 1, added(2, "ab")))
	seed := checksum(0, begin)
	zeros := added(maxValues, "") // of no width: the largest dictionary in a few bytes
	for _, c := range []struct {
		what, want string
		fields     []byte
		first      uint64
	}{
		{"a number that was never assigned", "not in the dictionary", list(1, 1, same(1, 2)), 2},
		{"the number of a value that follows in the same list", "not in the dictionary", list(2, 1, same(1, 2), added(1, "c")), 2},
		{"a number below 0", "not in the dictionary", list(1, 1, same(1, -1)), 2},
		{"the greatest distance", "not in the dictionary", list(2, 1, same(1, 0), same(1, 1<<63-1)), 2},
		{"a stretch beyond the dictionary", "not in the dictionary", list(3, 1, same(3, 0)), 2},
		{"a billion values in a few bytes", "list is too long", list(1<<30, 8, same(1<<30, 0)), 2},
		{"a billion new values", "list is too long", list(1<<30, 0, added(1<<30, "")), 2},
		{"more values than the list says", "a different number of values than it states", list(1, 1, same(2, 0)), 2},
		{"fewer values than the list says", "ends within", list(3, 1, same(2, 0)), 2},
		{"a stretch of no values", "a different number of values than it states", list(1, 1, same(0, 0)), 2},
		{"the largest stretch", "a different number of values than it states", list(1, 1, u(1<<64-1)), 2},
		{"values wider than the limit", "list is too long", list(1, 9, added(1, "123456789")), 2},
		{"new values that are missing", "ends within", list(2, 8, added(2, "0123456789")), 2},
		{"a dictionary that is too large", "too many values", list(maxValues, 0, zeros), 2},
		{"a first number above the limit", "too many values", list(1, 1, same(1, 0)), maxValues + 1},
		{"a value that was lost", "not in the dictionary", list(1, 1, same(1, 5)), 9},
		{"lost values to the end of the largest dictionary", "too many values", list(1, 1, added(1, "c")), maxValues},
		{"an unknown field", "does not belong", []byte{255}, 2},
		{"no fields", "", nil, 2},
		{"ends of which some have no value", "not as many ends", slices.Concat([]byte{tagEnds}, u(2, 8, 8, 1), []byte{1}, same(1, 0)), 2},
		{"ends without a list", "ends within", slices.Concat([]byte{tagEnds}, u(2, 8, 8)), 2},
	} {
		payload := slices.Concat(head, u(c.first), c.fields)
		b := append([]byte(header), 0)
		b = appendFrame(appendFrame(b, begin, seed), payload, checksum(seed, payload))
		b = appendFrame(b, slices.Concat(head, u(0, 1), list(1, 1, added(1, "z"))), checksum(0, slices.Concat(head, u(0, 1), list(1, 1, added(1, "z")))))
		b = appendMark(b, kindEnd)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var r MessageReader
		_, err := readMessage(&r, b)
		records, damage, torn := readAll(t, b)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 128<<20 {
			t.Errorf("%s: took %d MiB", c.what, used>>20)
		}
		if c.want == "" {
			if err != nil || damage != nil || len(records) != 3 {
				t.Errorf("%s: %v, %d records", c.what, err, len(records))
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "at byte") {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
		if len(records) != 2 || len(damage) != 1 || torn != (Torn{}) {
			t.Errorf("%s: %d records, damage %v, torn %v; want the record before and the dictionary after it", c.what, len(records), damage, torn)
		}
	}
	alone := slices.Concat(head, u(2), list(1, 1, same(1, 0)))
	var r MessageReader
	_, err := readMessage(&r, appendMark(appendFrame(append([]byte(header), 0), alone, checksum(seed, alone)), kindEnd))
	if err == nil || !strings.Contains(err.Error(), errNoDictionary.Error()) {
		t.Errorf("a record without a dictionary: %v", err)
	}
	// The dictionary of one message is not that of the next.
	if _, err := readMessage(&r, appendMark(appendFrame(append([]byte(header), 0), begin, seed), kindEnd)); err != nil {
		t.Fatal(err)
	}
	if _, err = readMessage(&r, appendMark(appendFrame(append([]byte(header), 0), alone, checksum(seed, alone)), kindEnd)); err == nil {
		t.Error("a message was read with the dictionary of another one")
	}
}

// TestPackedMessageIsBounded: the unpacked size of a message is bounded by its size. A writer packs no more than that, and a reader
// accepts no more.
func TestPackedMessageIsBounded(t *testing.T) {
	var ids []uint64
	for i := range uint64(5_000) {
		ids = append(ids, 1<<63+i)
	}
	var records []Record
	for i := range uint64(600) { // 24 MB, of which most is the same
		records = append(records, &Inference{Span: ref(i+1, 1), Prompt: Prompt{Identity: Engine, HashIDs: ids}})
	}
	b := message(t, records...)
	if n := len(b); n > 2<<20 || n < len(records)*8*len(ids)/maxRatio-maxUnpacked/maxRatio {
		t.Errorf("%d bytes of %d", n, len(records)*8*len(ids))
	}
	var r MessageReader
	got, err := readMessage(&r, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(records) || !slices.EqualFunc(records, got, func(a, b Record) bool { return bytes.Equal(AppendRecord(nil, a), AppendRecord(nil, b)) }) {
		t.Errorf("%d records, or others than were written", len(got))
	}

	hostile := append([]byte(header), 0)
	var p packer
	var batch Batch
	for _, r := range records {
		if err := batch.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	for i := range batch.entries {
		e := &batch.entries[i]
		p.unpacked = 0
		hostile = p.appendFrame(hostile, batch.records[e.record.from:e.record.to], &e.lists)
	}
	if _, err = readMessage(&r, appendMark(hostile, kindEnd)); err == nil || !strings.Contains(err.Error(), "are larger than any that a writer packs") {
		t.Errorf("%d bytes that unpack to %d: %v", len(hostile), len(records)*8*len(ids), err)
	}
}

// TestManyHoles: more losses than a reader can distinguish cost more records, but no record is read wrongly.
func TestManyHoles(t *testing.T) {
	records := prompts(900, 10)
	whole := packed(records...)
	plain := map[string]bool{}
	for _, r := range records {
		plain[string(AppendRecord(nil, r))] = true
	}
	b := []byte(header)
	for i, frame := range bytes.SplitAfter(whole[len(header):], []byte{0}) {
		if i == 0 || i%5 != 0 {
			b = append(b, frame...)
		}
	}
	got, damage, _ := readAll(t, b)
	for _, r := range got {
		if !plain[string(AppendRecord(nil, r))] {
			t.Fatalf("a record that was never written: %+v", r)
		}
	}
	if len(got) < len(records)/8 || len(damage) == 0 {
		t.Errorf("%d of %d records, %d damaged stretches", len(got), len(records), len(damage))
	}
}

// FuzzPacked packs fuzzed values, and reads them back.
func FuzzPacked(f *testing.F) {
	f.Add([]byte{3, 1, 2, 3, 3, 1, 2, 4, 0, 2, 2, 4}, uint8(8))
	f.Add([]byte{1, 1, 2, 1, 1, 3, 1, 1, 1}, uint8(1))
	f.Fuzz(func(t *testing.T, lists []byte, width uint8) {
		var records []Record
		for i := uint64(1); len(lists) > 0; i++ {
			n := min(int(lists[0]), len(lists)-1)
			values := []uint64{}
			for _, v := range lists[1 : 1+n] {
				values = append(values, uint64(v)<<(8*(width%8)))
			}
			lists = lists[1+n:]
			r := &Inference{Span: ref(i, 1)}
			switch i % 3 {
			case 0:
				r.HashIDs = values
			case 1:
				r.Chain.Cells = values
			default:
				r.HashIDs = values
				for k, v := range values {
					r.Chain.Ends = append(r.Chain.Ends, blockhash.End{Bytes: int64(k) + 1, Value: v})
				}
			}
			records = append(records, r)
		}
		got, damage, torn := readAll(t, packed(records...))
		same(t, "records", records, got)
		if damage != nil || torn != (Torn{}) {
			t.Errorf("damage %v, torn %v", damage, torn)
		}
	})
}
