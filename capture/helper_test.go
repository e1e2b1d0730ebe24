// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// epoch is 2025-06-15 15:06:40 UTC, in ns; tests count in ms from it.
const epoch = int64(1_750_000_000) * 1e9

func at(ms int64) int64 { return epoch + ms*int64(time.Millisecond) }

func ref(trace, span uint64) mooncake.SpanRef {
	var r mooncake.SpanRef
	binary.BigEndian.PutUint64(r.TraceID[8:], trace)
	binary.BigEndian.PutUint64(r.SpanID[:], span)
	return r
}

func sid(span uint64) journal.SpanID { return ref(0, span).SpanID }

func name(t testing.TB, s string) journal.Name {
	t.Helper()
	n, err := journal.ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func opt[T any](v T) mooncake.Opt[T] { return mooncake.Some(v) }

// call returns a served request of production: 1,000 prompt tokens, 10 of output, 100 ms long.
func call(trace, span, parent uint64, ms int64, change ...func(*journal.Inference)) *journal.Inference {
	r := &journal.Inference{
		Span: ref(trace, span), Parent: sid(parent), Start: at(ms), End: at(ms + 100),
		InputTokens: opt[int64](1000), OutputTokens: opt[int64](10),
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func failed(r *journal.Inference) { r.Failed = true }
func noTokens(r *journal.Inference) {
	r.InputTokens, r.OutputTokens = opt[int64](0), mooncake.Opt[int64]{}
}

func inSession(s journal.Session) func(*journal.Inference) {
	return func(r *journal.Inference) { r.Session = s }
}

func response(id string) func(*journal.Inference) {
	return func(r *journal.Inference) { r.Response = journal.ResponseOf(id) }
}

func lasting(ms int64) func(*journal.Inference) {
	return func(r *journal.Inference) { r.End = r.Start + ms*1e6 }
}

func tokens(n, m int64) func(*journal.Inference) {
	return func(r *journal.Inference) { r.InputTokens, r.OutputTokens = opt(n), opt(m) }
}

func cached(n int64) func(*journal.Inference) {
	return func(r *journal.Inference) { r.CachedTokens = opt(n) }
}

func engine(ids ...uint64) func(*journal.Inference) {
	return func(r *journal.Inference) {
		r.Prompt = journal.Prompt{Identity: journal.Engine, HashIDs: ids, BlockSize: 512, Domain: 7}
	}
}

// replayed returns a row of a run.
func replayed(t testing.TB, run string, row int64, trace, span, parent uint64, ids ...uint64) *journal.Inference {
	t.Helper()
	return &journal.Inference{
		Span: ref(trace, span), Parent: sid(parent), Start: at(row), End: at(row + 5), Run: name(t, run), Row: opt(row),
		Timestamp: opt(float64(row * 10)), InputLength: opt(int64(len(ids)) * 512), OutputLength: opt[int64](3),
		InputTokens: opt[int64](77777), OutputTokens: opt[int64](3),
		Prompt: journal.Prompt{Identity: journal.Trace, HashIDs: ids, BlockSize: 512, Domain: 1},
	}
}

// header begins every journal.
const header = "moonloop-journal 1\n"

// appendFrame frames a payload as [journal.Writer] does: with its CRC-32C, and each stretch of bytes without a 0 after its length plus
// one. A stretch of 254 bytes is followed by no 0.
func appendFrame(dst, payload []byte) []byte {
	rest := binary.LittleEndian.AppendUint32(bytes.Clone(payload), crc32.Checksum(payload, crc32.MakeTable(crc32.Castagnoli)))
	for more := true; more; {
		n := bytes.IndexByte(rest[:min(len(rest), 254)], 0)
		skip := n + 1
		if n < 0 {
			n = min(len(rest), 254)
			skip, more = n, n == 254
		}
		dst = append(append(dst, byte(n+1)), rest[:n]...)
		rest = rest[skip:]
	}
	return append(dst, 0)
}

// compareNames compares values that contain names.
var compareNames = cmp.Comparer(func(a, b journal.Name) bool { return a == b })

// everyField returns records with every field, from a journal.
func everyField(t testing.TB) []journal.Record {
	t.Helper()
	f, err := os.Open(filepath.Join("journal", "testdata", "every-field.journal"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var records []journal.Record
	for r := journal.NewReader(f.Name(), f); ; {
		one, err := r.Next()
		if errors.Is(err, io.EOF) {
			return records
		}
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, one)
	}
}

// journalOf returns a journal of records, as a file holds it.
func journalOf(records ...journal.Record) []byte {
	b := []byte(header)
	for _, r := range records {
		b = appendFrame(b, journal.AppendRecord(nil, r))
	}
	return b
}

func buffer(name string, b []byte) Source {
	return Source{Name: name, Size: int64(len(b)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
}

// memory is a sink that keeps what is written, sidecars included.
type memory map[string][]byte

func (m memory) sink(p Partition) (TraceWriter, error) {
	t := &memoryTrace{m: m, name: p.name()}
	t.Writer = mooncake.NewWriter(&t.buf)
	return t, nil
}

type memoryTrace struct {
	*mooncake.Writer
	m    memory
	name string
	buf  bytes.Buffer
}

func (t *memoryTrace) Commit(meta *mooncake.Meta) error {
	var b bytes.Buffer
	if err := meta.Write(&b); err != nil {
		return err
	}
	t.m[t.name], t.m[t.name+" meta"] = t.buf.Bytes(), b.Bytes()
	return nil
}

func (t *memoryTrace) Close() error { return nil }

// compileBytes compiles journals in memory.
func compileBytes(t testing.TB, o Options, journals ...[]byte) (memory, Result) {
	t.Helper()
	m := memory{}
	if o.TempDir == "" {
		o.TempDir = t.TempDir()
	}
	var sources []Source
	for _, j := range journals {
		sources = append(sources, buffer("test", j))
	}
	res, err := Compile(t.Context(), o, m.sink, sources...)
	if err != nil {
		t.Fatal(err)
	}
	return m, res
}

func (m memory) rows(t testing.TB, name string) []*mooncake.Row {
	t.Helper()
	meta := m.meta(t, name)
	r := mooncake.NewReader(bytes.NewReader(m[name]), mooncake.ReaderOptions{Name: name, BlockSize: meta.BlockSize, FineBlockSize: meta.FineBlockSize})
	var rows []*mooncake.Row
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
}

func (m memory) meta(t testing.TB, name string) *mooncake.Meta {
	t.Helper()
	meta, err := mooncake.ReadMeta(bytes.NewReader(m[name+" meta"]))
	if err != nil {
		t.Fatal(err)
	}
	return meta
}

func dropped(list []mooncake.Dropped, l loss) int64 {
	for _, d := range list {
		if d.What == l.what && d.Reason == l.reason {
			return d.Count
		}
	}
	return 0
}

// repeated returns how often a test repeats a calculation with another input: with -short, as under the race detector, only a few times.
func repeated[N int | uint64](times, few N) N {
	if testing.Short() {
		return few
	}
	return times
}

// otherInput skips a test with -short, as under the race detector. It compiles other records than the tests that check shards, memory and
// purity, in the same two goroutines, so it would show no other race.
func otherInput(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("other records, no other goroutines: not under the race detector")
	}
}

func equal(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, compareNames); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// chain returns the cells of a text, under one key.
func chain(t testing.TB, text string) blockhash.Chain {
	t.Helper()
	key, err := blockhash.NewKey(bytes.Repeat([]byte{1}, blockhash.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	h, err := blockhash.NewHasher(key, "00000009")
	if err != nil {
		t.Fatal(err)
	}
	h.Role("user")
	h.Text(text)
	return h.Chain()
}

func countFiles(t testing.TB, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
