// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/mooncake"
)

var update = flag.Bool("update", false, "write the golden files")

// full returns a record with every field, so that a field that the encoding forgets is noticed.
func full(t testing.TB) *Inference {
	t.Helper()
	return &Inference{
		Span: ref(1, 2), Parent: sid(3), Start: at(1), End: at(9), Failed: true, FirstToken: opt(at(4)),
		InputTokens: opt[int64](5), OutputTokens: opt[int64](6), CachedTokens: opt[int64](0),
		Prompt: Prompt{
			Identity: Text, HashIDs: []uint64{0, 1 << 63, 1<<64 - 1}, BlockSize: 512, Domain: 0xfffffffe, Key: 0xffffffff,
			Chain: blockhash.Chain{Cells: []uint64{7, 8}, Tail: 9, Bytes: 300, Ends: []blockhash.End{
				{Bytes: 3, Role: blockhash.RoleSystem, Value: 1<<64 - 1}, {Bytes: 256, Role: blockhash.RoleTools, Value: 8}, {Bytes: 300, Value: 0},
			}}, Prefix: true, MediaEnd: 256,
			Reply:      blockhash.End{Bytes: blockhash.MaxEndBytes, Role: blockhash.RoleAssistant, Value: 1 << 63},
			HashRanges: []mooncake.HashRange{{First: 0, Count: 9}, {First: 1<<64 - 1, Count: 1}, {First: 5, Count: 1<<63 - 1}}, FineBlockSize: 16,
			Replies: []mooncake.Reply{{Back: 7, At: 1034, Tokens: 212}, {Back: 1, At: 1<<63 - 1, Tokens: 1}},
		},
		Session: 10, Model: name(t, "org/model-1"), Response: ResponseOf("chatcmpl-1"), Run: name(t, "nightly"),
		Row: opt[int64](0), Timestamp: opt(0.25), InputLength: opt[int64](11), OutputLength: opt[int64](0),
		Offset: opt(1.5), Spread: opt(0.0), Link: ref(12, 13), Warmup: true, Synthetic: true,
		CacheWriteTokens: opt[int64](7), Exclusive: true, OutputEstimate: opt[int64](8), Answered: name(t, "model-1-2024-08-06"),
		Joined: ref(14, 15), Producer: 1<<64 - 1, Clock: 16, Remote: true, Finish: name(t, "tool_calls"),
		Order: BothLast,
	}
}

func some(t testing.TB) []Record {
	t.Helper()
	return []Record{
		full(t),
		&Inference{Span: ref(1, 4), Prompt: Prompt{HashIDs: []uint64{}}},
		&Inference{Span: ref(1, 8), Prompt: Prompt{Identity: None}},
		&Content{Span: ref(1, 5), Parent: sid(2), Prompt: Prompt{Identity: Engine, HashIDs: []uint64{256}, BlockSize: 16, Domain: 1}},
		&Content{Span: ref(1, 9), Parent: sid(2), Start: at(5), Prompt: full(t).Prompt},
		&Link{Span: ref(2, 6), Parent: sid(7), Session: 8},
		&Link{Span: ref(2, 7)},
		&Link{Span: ref(2, 8), Border: true},
		&Inference{Span: ref(1, 10), Model: name(t, "m"), Answered: name(t, "m")},
		&Inference{Span: ref(1, 11), Prompt: Prompt{HashRanges: []mooncake.HashRange{}, Replies: []mooncake.Reply{}}},
	}
}

// readAll reads a journal to its end: records, damaged stretches, a torn end.
func readAll(t testing.TB, b []byte) (records []Record, damage []Damage, torn Torn) {
	t.Helper()
	return drain(t, NewReader("j", bytes.NewReader(b)))
}

func drain(t testing.TB, r *Reader) (records []Record, damage []Damage, torn Torn) {
	t.Helper()
	for {
		rec, err := r.Next()
		d := (*Damage)(nil)
		switch {
		case err == nil:
			records = append(records, rec)
		case errors.As(err, &d):
			damage = append(damage, *d)
		case errors.Is(err, io.EOF):
			return records, damage, r.Torn()
		default:
			t.Fatal(err)
		}
	}
}

// withoutLast removes the fields that were added with the ends of messages.
func withoutLast(p *Prompt) {
	p.Chain.Ends, p.Reply, p.HashRanges, p.FineBlockSize, p.Replies = nil, blockhash.End{}, nil, 0, nil
}

// TestEncoding: the encoding of every field never changes.
func TestEncoding(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("testdata", "every-field.journal"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "journal of every field", want, framed(header1, some(t)...))
	golden := filepath.Join("testdata", "packed.journal")
	got := packed(append(some(t), some(t)...)...)
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err = os.ReadFile(golden); err != nil {
		t.Fatal(err)
	}
	equal(t, "journal with a dictionary", want, got)
}

// TestOldJournals reads journals that were written before records had the fields that come last.
func TestOldJournals(t *testing.T) {
	for file, older := range map[string]bool{"before-shapes.journal": true, "before-ends.journal": false} {
		b, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		var want []Record
		for _, r := range some(t) {
			switch r := r.(type) {
			case *Inference:
				withoutLast(&r.Prompt)
				r.Finish, r.Order = Name{}, ""
				if older {
					r.MediaEnd, r.CacheWriteTokens, r.Exclusive, r.OutputEstimate = 0, mooncake.Opt[int64]{}, false, mooncake.Opt[int64]{}
					r.Answered, r.Joined, r.Producer, r.Clock, r.Remote = Name{}, mooncake.SpanRef{}, 0, 0, false
				}
				if r.Span == ref(1, 11) || older && r.Span == ref(1, 10) {
					continue
				}
			case *Content:
				withoutLast(&r.Prompt)
				if older {
					r.MediaEnd = 0
				}
			case *Link:
				if older && r.Border {
					continue
				}
			}
			want = append(want, r)
		}
		got, damage, torn := readAll(t, b)
		same(t, file+": records", want, got)
		equal(t, file+": damage", 0, len(damage))
		equal(t, file+": torn", Torn{}, torn)
	}
}

// TestHostileEnds: records with invalid ends, ranges or replies are damage.
func TestHostileEnds(t *testing.T) {
	good := full(t)
	for what, change := range map[string]func(*Prompt){
		"two ends at one place":             func(p *Prompt) { p.Chain.Ends = append(p.Chain.Ends, p.Chain.Ends[0]) },
		"an unknown role":                   func(p *Prompt) { p.Chain.Ends[0].Role = 7 },
		"an end beyond any text":            func(p *Prompt) { p.Chain.Ends[0].Bytes = blockhash.MaxEndBytes + 1 },
		"more ends than the limit":          func(p *Prompt) { p.Chain.Ends = make([]blockhash.End, blockhash.MaxEnds+1) },
		"a reply that ends with its prompt": func(p *Prompt) { p.Reply.Bytes = p.Chain.Bytes },
		"a range of -1 ids":                 func(p *Prompt) { p.HashRanges = []mooncake.HashRange{{Count: -1}} },
		"more ranges than the limit":        func(p *Prompt) { p.HashRanges = make([]mooncake.HashRange, MaxRanges+1) },
		"a reply before the prompt":         func(p *Prompt) { p.Replies = []mooncake.Reply{{At: -1}} },
		"more replies than the limit":       func(p *Prompt) { p.Replies = make([]mooncake.Reply, MaxReplies+1) },
	} {
		bad := *good
		bad.Chain.Ends = slices.Clone(good.Chain.Ends)
		change(&bad.Prompt)
		records, damage, _ := readAll(t, append(journal(&bad, good), []byte{0}...))
		same(t, what, []Record{good}, records)
		equal(t, what, 1, len(damage))
	}
}

var compareNames = cmp.Comparer(func(a, b Name) bool { return a == b })

func same(t testing.TB, what string, want, got []Record) {
	t.Helper()
	if diff := cmp.Diff(want, got, compareNames); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestRecordsSurvive(t *testing.T) {
	got, damage, torn := readAll(t, journal(some(t)...))
	same(t, "records", some(t), got)
	if damage != nil || torn != (Torn{}) {
		t.Errorf("damage %v, torn %v in a sound journal", damage, torn)
	}
}

func TestLinkIsSmall(t *testing.T) {
	l := &Link{Span: ref(1<<63, 1<<62), Parent: sid(1 << 61), Session: 1 << 60}
	if n := len(journal(l)) - len(header); n > 60 {
		t.Errorf("a link takes %d bytes, more than 60", n)
	}
}

func TestFrames(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 800 {
		for _, zeros := range []int{0, 2, 300} { // none, many, a few
			p := make([]byte, n)
			for i := range p {
				if p[i] = byte(1 + rng.IntN(255)); zeros > 0 && rng.IntN(zeros) == 0 {
					p[i] = 0
				}
			}
			f := appendPlain(nil, p)
			if i := bytes.IndexByte(f, 0); i != len(f)-1 {
				t.Fatalf("a frame of %d bytes has a 0 at %d", len(f), i)
			}
			got, sum, ok := openFrame(f[:len(f)-1])
			if !ok || sum != checksum(0, p) || !bytes.Equal(got, p) {
				t.Fatalf("a payload of %d bytes does not come back", n)
			}
		}
	}
}

func TestTornAtEveryByte(t *testing.T) {
	for what, journal := range map[string]func(...Record) []byte{"plain": journal, "packed": packed} {
		t.Run(what, func(t *testing.T) { tornAtEveryByte(t, journal) })
	}
}

func tornAtEveryByte(t *testing.T, journal func(...Record) []byte) {
	t.Helper()
	records := some(t)
	whole := journal(records...)
	ends := []int{len(header)} // where records end
	for i := range records {
		ends = append(ends, len(journal(records[:i+1]...)))
	}
	for cut := range whole {
		complete := 0
		for complete+1 < len(ends) && ends[complete+1]-1 <= cut { // the 0 is not part of the record
			complete++
		}
		for _, tail := range [][]byte{nil, make([]byte, 9), make([]byte, 5000)} { // file systems fill up with zeros
			if cut < len(header) && tail != nil {
				continue // TestNotAJournal
			}
			got, damage, torn := readAll(t, append(bytes.Clone(whole[:cut]), tail...))
			same(t, "records", records[:complete:complete], append([]Record{}, got...))
			if damage != nil {
				t.Errorf("cut at %d: damage %v reported for a torn tail", cut, damage)
			}
			want := int64(1)
			if tail == nil && (cut == 0 || cut == ends[complete] || cut == ends[complete]-1 && complete > 0) {
				want = 0 // between records
			}
			if torn.Records != want {
				t.Errorf("cut at %d with %d zeros after it: torn %v", cut, len(tail), torn)
			}
		}
	}
}

func TestWriterGoesOnAfterTear(t *testing.T) {
	records := some(t)
	whole := packed(records...)
	for cut := range whole {
		file := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(file, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := OpenWriter(file, WriterOptions{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Append(records[3]); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before, _, tornBefore := readAll(t, whole[:cut])
		if cut < len(header) {
			tornBefore = Torn{} // a header is written anew
		}
		got, damage, torn := readAll(t, b)
		same(t, "records", append(before, records[3]), got)
		// The torn bytes may be one more: the 0 that ends the torn record.
		if damage != nil || torn.Records != tornBefore.Records {
			t.Errorf("cut at %d: damage %v, torn %v, want torn %v", cut, damage, torn, tornBefore)
		}
	}
}

func TestCorruptionIsReportedWithItsOffset(t *testing.T) {
	records := some(t)
	whole := journal(records...)
	ends := []int64{int64(len(header))}
	for i := range records {
		ends = append(ends, int64(len(journal(records[:i+1]...))))
	}
	for i := len(header); i < len(whole); i++ {
		for _, flip := range []byte{1, 0x80, whole[i]} { // the last one makes it a 0
			b := bytes.Clone(whole)
			if b[i] ^= flip; bytes.Equal(b, whole) {
				continue
			}
			got, damage, torn := readAll(t, b)
			hit := 0
			for ends[hit+1] <= int64(i) {
				hit++
			}
			lost := len(records) - len(got)
			if lost < 1 || lost > 2 { // two where the 0 between them is gone
				t.Fatalf("byte %d: %d records lost", i, lost)
			}
			if hit+lost == len(records) {
				if len(damage) != 0 || torn.Records != 1 {
					t.Errorf("byte %d of the last record: damage %v, torn %v", i, damage, torn)
				}
				continue
			}
			first := ends[hit]
			if int64(i) == first && b[i] == 0 {
				first++ // an empty frame precedes it now
			}
			if len(damage) != 1 || damage[0].Offset != first || damage[0].Bytes != ends[hit+lost]-first {
				t.Errorf("byte %d: damage %v, want one of %d bytes at %d", i, damage, ends[hit+lost]-first, first)
			}
		}
	}
}

// TestDamagedHeader: a header says nothing but the version, so records are read without the rest of it.
func TestDamagedHeader(t *testing.T) {
	records := some(t)
	whole := journal(records...)
	for i := range len(header) {
		b := bytes.Clone(whole)
		b[i] ^= 0x40
		if i == len(header)-2 {
			if _, err := NewReader("j", bytes.NewReader(b)).Next(); !errors.Is(err, ErrNotJournal) {
				t.Errorf("version: %v", err)
			}
			continue
		}
		got, damage, torn := readAll(t, b)
		same(t, "records", records, got)
		if len(damage) != 1 || damage[0].Offset != 0 || damage[0].Bytes != HeaderSize || torn != (Torn{}) {
			t.Errorf("byte %d: damage %v, torn %v", i, damage, torn)
		}
		for what, bad := range map[string][]byte{"no record": b[:len(header)], "a damaged record": append(bytes.Clone(b[:len(header)+5]), b[len(header)+6:]...)} {
			if _, err := NewReader("j", bytes.NewReader(bad)).Next(); !errors.Is(err, ErrNotJournal) {
				t.Errorf("byte %d, %s: %v", i, what, err)
			}
		}
	}
}

func TestNotAJournal(t *testing.T) {
	for _, c := range []struct{ what, content string }{
		{"another file", `{"timestamp": 0}` + "\n and more"},
		{"another version", "moonloop-journal 3\nabc"},
		{"a header cut off and filled up with zeros", "moonloop-jour\x00\x00\x00\x00\x00\x00\x00\x00"},
	} {
		_, err := NewReader("j", bytes.NewReader([]byte(c.content))).Next()
		if !errors.Is(err, ErrNotJournal) {
			t.Errorf("%s: reader: %v", c.what, err)
		}
		file := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenWriter(file, WriterOptions{}); !errors.Is(err, ErrNotJournal) {
			t.Errorf("%s: writer: %v", c.what, err)
		}
		if after, _ := os.ReadFile(file); string(after) != c.content {
			t.Errorf("%s: the writer changed the file", c.what)
		}
	}
}

func TestWriter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "j")
	w, err := OpenWriter(file, WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenWriter(file, WriterOptions{}); err == nil && runtime.GOOS != "aix" {
		t.Error("two writers have one journal open")
	}
	if err := w.Append(some(t)...); err != nil {
		t.Fatal(err)
	}
	large := &Inference{Span: ref(1, 1), Prompt: Prompt{HashIDs: make([]uint64, MaxRecord/8)}}
	for i := range large.HashIDs {
		large.HashIDs[i] = 1<<64 - 1
	}
	if err := w.Append(some(t)[0], large); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a record above the limit: %v", err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "size", info.Size(), w.Size())
	if mode := info.Mode().Perm(); mode != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("mode %o", mode)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "bytes of the file", packed(some(t)...), b)
}

// TestFailedWrite makes a write fail midway, as on a full disk, and the next one succeed.
func TestFailedWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "j")
	w, err := OpenWriter(file, WriterOptions{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	good := w.file
	if w.file, err = os.Open(file); err != nil { // cannot be written
		t.Fatal(err)
	}
	records := some(t)
	if err := w.Append(records[0]); err == nil {
		t.Fatal("a write that must fail succeeded")
	}
	w.file.Close()
	if _, err := good.Write(journal(records[0])[len(header) : len(header)+40]); err != nil { // what got through
		t.Fatal(err)
	}
	w.file = good
	if err := w.Append(records...); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, damage, torn := readAll(t, b)
	same(t, "records", records, got)
	if damage != nil || torn.Records != 1 || torn.Bytes < 40 {
		t.Errorf("damage %v, torn %v", damage, torn)
	}
}

func TestLargestRecord(t *testing.T) {
	// 8 bytes an id, and some for the fields around them.
	r := &Inference{Span: ref(1, 1), Prompt: Prompt{HashIDs: make([]uint64, MaxRecord/8-16)}}
	for i := range r.HashIDs {
		r.HashIDs[i] = 1<<63 + uint64(i)<<8
	}
	got, damage, torn := readAll(t, packed(r, r))
	want := AppendRecord(nil, r)
	if len(got) != 2 || !bytes.Equal(want, AppendRecord(nil, got[0])) || !bytes.Equal(want, AppendRecord(nil, got[1])) {
		t.Errorf("%d records, or different ones", len(got))
	}
	if damage != nil || torn != (Torn{}) {
		t.Errorf("damage %v, torn %v", damage, torn)
	}
	// Twice the limit without a 0 is skipped, however long.
	first := some(t)[:1]
	b := append(journal(first...), bytes.Repeat([]byte{1}, 3*MaxRecord)...)
	b = append(append(b, 0), journal(some(t)...)[len(header):]...)
	got, damage, _ = readAll(t, b)
	same(t, "records around", append(first, some(t)...), got)
	if len(damage) != 1 || damage[0].Bytes != 3*MaxRecord+1 {
		t.Errorf("damage %v", damage)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		in, why string
		ok      bool
	}{
		{"meta-llama/Llama-3.1-8B:free@x", "what models are called", true},
		{"", "absent", true},
		{"tell me a story", "spaces make sentences", false},
		{"a\nb", "a line break", false},
		{"日本語", "a language that needs no spaces", false},
		{string(bytes.Repeat([]byte{'a'}, 256)), "the longest", true},
		{string(bytes.Repeat([]byte{'a'}, 257)), "longer than that", false},
	} {
		if _, err := ParseName(c.in); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.why, err)
		}
	}
	for in, want := range map[string]string{
		"": "", "00112233445566aa": "00112233445566aa", "user-7": SessionOf("user-7").String(),
	} {
		equal(t, "session "+in, want, SessionOf(in).String())
	}
	for _, text := range []string{"user-7", "00112233445566AA", "0000000000000000"} {
		if s := SessionOf(text).String(); s == text || len(s) != 16 {
			t.Errorf("session of %q is %q", text, s)
		}
	}
	if d, err := ParseDomain("0badcafe"); err != nil || d.String() != "0badcafe" {
		t.Errorf("domain %v, %v", d, err)
	}
	if _, err := ParseDomain("a text"); err == nil {
		t.Error("a text is a domain")
	}
	for i := NoIdentity; i <= Lengths; i++ {
		if got, ok := ParseIdentity(i.String()); !ok || got != i {
			t.Errorf("identity %d is %q and reads back as %d", i, i, got)
		}
	}
}

// TestLastFields: the fields for graphs and for sampling are read as they were written, and invalid ones are refused.
func TestLastFields(t *testing.T) {
	want := []Record{
		&Link{Span: ref(1, 2), Start: 5, End: 9, Acts: Tool, Follows: []SpanID{sid(3), sid(4)}},
		&Link{Span: ref(1, 3), Start: 5, End: 5, Border: true, Acts: Agent},
		&Inference{Span: ref(1, 5), Follows: []SpanID{sid(3)}, Step: Step{
			ID: 1<<64 - 1, WaitFor: []Edge{{7, mooncake.EvidenceTime}, {8, mooncake.EvidenceLink}}, Delay: 3, ToolWait: 1<<63 - 1, Endless: true,
			Turn: Turn{ID: 9, Begin: -1, End: 1<<63 - 1, From: 4, To: 5, Waited: true},
		}},
		&Inference{Span: ref(1, 11), Step: Step{Turn: Turn{ID: 1, Acts: true}}},
		&Inference{Span: ref(1, 6), Waits: Waits{InGraph: true}},
		&Inference{Span: ref(1, 7), Waits: Waits{
			InGraph: true, For: []RowEdge{{0, mooncake.EvidenceToolCall}, {1 << 40, 0}, {2, mooncake.EvidenceSession}}, Delay: opt(0.5), ToolWait: opt(0.0),
		}},
		&Inference{Span: ref(1, 8), Waits: Waits{InGraph: true, ToolWait: opt(350.25)}, Tools: ToolIDs{Made: []uint64{1, 1<<64 - 1}, Given: []uint64{2}}},
		&Content{Span: ref(1, 9), Prompt: Prompt{Identity: None}, Tools: ToolIDs{Made: []uint64{3}}},
		&Link{Span: ref(1, 10), Acts: Tool, Tools: ToolIDs{Given: []uint64{3}}},
		&Inference{Span: ref(1, 11), Tools: ToolIDs{Given: []uint64{2}}, Sampled: Sampled{PerMillion: MaxPerMillion, ByPrefix: true, List: 1<<32 - 1}},
		&Inference{Span: ref(1, 12), Sampled: Sampled{PerMillion: 1}},
		&Inference{Span: ref(1, 13), Failed: true, Row: opt[int64](0), Ending: Skipped},
	}
	got, damage, _ := readAll(t, journal(want...))
	equal(t, "records", want, got)
	equal(t, "damage", 0, len(damage))
	for _, tags := range [][]byte{{tagActor, 3}, {tagActor, 0}, {tagFollows, 0}, {tagFollows, 255}, {tagStep, 1, 0}, {tagWaits, 0, 4}, {tagWaits, 1, 0, 6, 0}, {tagToolsMade, 0}, {tagToolsGiven, 65}, {tagTurn, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4}, {tagSampled, 0, 0, 0, 0, 0}, {tagSampled, 1, 0, 0, 0, 0}, {tagSampled, 2, 0, 0, 0}, {tagSampled, 0x80, 0x89, 0x7a, 0, 0, 0, 0}, {tagFailed, tagRow, 0, tagEnding, 0}, {tagFailed, tagRow, 0, tagEnding, 4}, {tagFailed, tagEnding, 1}, {tagRow, 0, tagEnding, 1}} {
		for _, kind := range []Kind{KindInference, KindLink, KindContent} {
			b := append(append([]byte{byte(kind)}, make([]byte, 24)...), tags...)
			if new(Decoder).Decode(b) == nil {
				t.Errorf("%q with %v is a record", kind, tags)
			}
		}
	}
}
