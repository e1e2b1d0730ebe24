// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// traffic makes records of all kinds: call trees, sessions, text, response ids across traces, two runs, duplicates.
func traffic(t testing.TB, requests int) []journal.Record {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 6))
	text := strings.Repeat("Call me Ishmael. Some years ago, never mind how long precisely. ", 200)
	chains := []func(*journal.Inference){}
	for n := 3000; n < len(text); n += 1111 {
		c := chain(t, text[:n])
		chains = append(chains, func(r *journal.Inference) {
			r.Prompt = journal.Prompt{Identity: journal.Text, Domain: 9, Chain: c}
			r.InputTokens = opt(int64(n / 4))
		})
	}
	models := []journal.Name{name(t, "m1"), name(t, "m2")}
	content := func(trace, span uint64, start int64) *journal.Content {
		var r journal.Inference
		chains[rng.IntN(len(chains))](&r)
		return &journal.Content{Span: ref(trace, span), Parent: sid(1), Start: start, Prompt: r.Prompt}
	}
	var out []journal.Record
	for i := range requests {
		trace, ms := uint64(1000+i), int64(rng.IntN(requests))
		s := journal.Session(1 + rng.IntN(requests/4+1))
		switch rng.IntN(7) {
		case 0: // client, link, gateway with content
			out = append(out, link(trace, 1, 0, s), call(trace, 2, 1, ms), link(trace, 3, 2, 0),
				call(trace, 4, 3, ms+1, chains[rng.IntN(len(chains))], func(r *journal.Inference) { r.Model = models[rng.IntN(2)] }))
		case 1: // a turn of a session without content
			out = append(out, call(trace, 1, 0, ms, inSession(s+1e6), tokens(int64(rng.IntN(9000)), 5)))
		case 2: // two traces, one response
			id := fmt.Sprint("r", i)
			out = append(out, call(trace, 1, 0, ms, response(id), chains[rng.IntN(len(chains))]), call(trace+1e6, 1, 0, ms+1, response(id), lasting(50)))
		case 3: // attempts
			out = append(out, call(trace, 1, 0, ms), call(trace, 2, 1, ms, failed), call(trace, 3, 1, ms+2, engine(rng.Uint64()%50, rng.Uint64())))
		case 4:
			out = append(out, replayed(t, "a", int64(i), trace, 1, 0, 0, uint64(1+i)), call(trace, 2, 1, ms))
		case 5:
			out = append(out, replayed(t, "b", int64(i), trace, 1, 99, 3, rng.Uint64()), &journal.Content{Span: ref(trace, 7), Parent: sid(1)})
		case 6: // log records in parts
			out = append(out, call(trace, 1, 0, ms, func(r *journal.Inference) { r.Identity = journal.None }),
				content(trace, 2, at(ms+rng.Int64N(2))), content(trace, 3, at(ms+rng.Int64N(2))))
		}
		if rng.IntN(5) == 0 {
			out = append(out, out[len(out)-1])
		}
	}
	return out
}

// TestPure deals records to journals at random, in random order, and compiles these under various limits of memory: the traces are the same.
func TestPure(t *testing.T) {
	records := traffic(t, 600)
	want, wantRes := compileBytes(t, Options{}, journalOf(records...))
	if len(want) != 6 || len(want.rows(t, production)) < 200 {
		t.Fatalf("%d files, %d rows of production", len(want), len(want.rows(t, production)))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	rounds := repeated(12, 4)
	for round := range rounds {
		dealt := make([][]journal.Record, 1+rng.IntN(8))
		for _, i := range rng.Perm(len(records)) {
			j := rng.IntN(len(dealt))
			dealt[j] = append(dealt[j], records[i])
		}
		var journals [][]byte
		for _, d := range dealt {
			journals = append(journals, journalOf(d...))
		}
		// From everything on disk, through merges of several passes, to everything in memory.
		memory := []int{8, 1 << 12, 1 << 16, DefaultMemory}[round%4]
		dir := t.TempDir()
		got, res := compileBytes(t, Options{Memory: memory, TempDir: dir}, journals...)
		for name, b := range want {
			if !bytes.Equal(b, got[name]) {
				t.Errorf("round %d with %d journals in %d bytes: %s differs", round, len(journals), memory, name)
			}
		}
		res.Journals = wantRes.Journals
		equal(t, "result", wantRes, res)
		equal(t, "temporary files left", 0, countFiles(t, dir))
	}
}

// TestEightCollectors deals a replay and conversations of text to eight journals, at random and in random order, some records twice, as if
// carried over from one segment to the next or delivered again: the traces are the same.
func TestEightCollectors(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	h := newHasher(t, blockhash.TextDomain)
	var records []journal.Record
	for i, c := range conversations(3, 40) {
		h.Reset()
		for _, m := range c.messages {
			h.Role(m[0])
			h.Text(m[1])
		}
		p := journal.Prompt{Identity: journal.Text, Domain: 9, Key: 8, Chain: h.Chain()}
		p.Chain.Cells, p.Chain.Ends = slices.Clone(p.Chain.Cells), slices.Clone(p.Chain.Ends)
		trace := uint64(i + 1)
		records = append(records, &journal.Content{Span: ref(trace, 3), Parent: sid(1), Start: at(int64(i)), Prompt: p},
			call(trace, 1, 2, int64(i), tokens(int64(len(c.tokens)), 9)), link(trace, 2, 0, journal.Session(i%7)))
	}
	for i := range uint64(300) {
		records = append(records, replayed(t, "a", int64(i), 1e6+i, 1, 0, 0, 1+i/2, 1000+i), call(1e6+i, 2, 1, 0))
	}
	want, wantRes := compileBytes(t, Options{}, journalOf(records...))
	equal(t, "identities", map[string]int64{"text": wantRes.Traces[0].Meta.Rows}, wantRes.Traces[0].Meta.Identity)
	equal(t, "keys", []string{"00000008"}, wantRes.Traces[0].Meta.HashKeys)
	equal(t, "rows of the replay", int64(300), wantRes.Traces[1].Meta.Rows)
	for round := range 4 {
		var dealt [8][]journal.Record
		copies := int64(0)
		for _, i := range rng.Perm(len(records)) {
			j := rng.IntN(8)
			dealt[j] = append(dealt[j], records[i])
			if rng.IntN(10) == 0 {
				k := rng.IntN(8) // the same or another one
				dealt[k] = append(dealt[k], records[i])
				copies++
			}
		}
		var journals [][]byte
		for _, d := range dealt {
			journals = append(journals, journalOf(d...))
		}
		got, res := compileBytes(t, Options{Memory: []int{1 << 12, DefaultMemory}[round%2]}, journals...)
		for name, b := range want {
			if !bytes.Equal(b, got[name]) {
				t.Errorf("round %d: %s differs", round, name)
			}
		}
		equal(t, "files", len(want), len(got))
		equal(t, "copies", copies, res.Copies)
	}
}

// publicRows returns rows of the public conversation trace.
func publicRows(t testing.TB, n int) []*mooncake.Row {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	name := filepath.Join(dir, "..", "shared", "data", "conversation_trace.jsonl")
	if _, err := os.Stat(name); err != nil {
		t.Skip("the public conversation trace is missing: ../shared/data/conversation_trace.jsonl from the repository root")
	}
	trace, err := mooncake.Open(t.Context(), name, mooncake.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	var rows []*mooncake.Row
	for range n {
		row, err := trace.Read()
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// asReplay returns the records of a replay of rows, with the engine's own spans and the phases below them.
func asReplay(t testing.TB, run string, rows []*mooncake.Row, trace uint64, jitter *rand.Rand) []journal.Record {
	t.Helper()
	var out []journal.Record
	for i, row := range rows {
		tr := trace + uint64(i)
		r := replayed(t, run, int64(i), tr, 1, 0, row.HashIDs...)
		r.Start = at(int64(row.Timestamp.V/30)) + jitter.Int64N(1e9) // spans start in no order
		r.End = r.Start + jitter.Int64N(1e9)
		r.Timestamp, r.InputLength, r.OutputLength = row.Timestamp, row.InputLength, row.OutputLength
		out = append(out, r, call(tr, 2, 3, 0, response(fmt.Sprint(run, i))), link(tr, 3, 1, 0), link(tr, 4, 1, 0))
	}
	return out
}

func digests(rows []*mooncake.Row) mooncake.Digests {
	d := mooncake.NewDigester(mooncake.CheckOptions{})
	for i, row := range rows {
		d.Add(row, int64(i+1))
	}
	return d.Digests()
}

// TestRoundTrip sends rows of the public trace through journals, next to production and a second run.
func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	rows := publicRows(t, 2000)
	records := asReplay(t, "first", rows, 1<<40, rng)
	records = append(records, asReplay(t, "second", rows[:500], 1<<41, rng)...)
	records = append(records, traffic(t, 400)...)
	journals := make([][]journal.Record, 8)
	for _, i := range rng.Perm(len(records)) {
		j := rng.IntN(len(journals))
		journals[j] = append(journals[j], records[i])
	}
	var dealt [][]byte
	for _, j := range journals {
		dealt = append(dealt, journalOf(j...))
	}
	m, _ := compileBytes(t, Options{Memory: 1 << 20}, dealt...)
	for run, want := range map[string][]*mooncake.Row{"first": rows, "second": rows[:500]} {
		got := m.rows(t, "run "+run)
		equal(t, run+": digests", digests(want), digests(got))
		equal(t, run+": sidecar", digests(want), m.meta(t, "run "+run).Digests)
		for i, row := range got {
			if row.Timestamp != want[i].Timestamp {
				t.Fatalf("%s: timestamp of row %d is %v, was %v", run, i, row.Timestamp, want[i].Timestamp)
			}
		}
	}
	alone, _ := compileBytes(t, Options{}, journalOf(traffic(t, 400)...))
	equal(t, "production next to the replays", string(alone[production]), string(m[production]))
}

// TestHostile compiles spans that no sane producer sends.
func TestHostile(t *testing.T) {
	many := repeated(1<<18, 1<<14)
	cycle := []journal.Record{call(1, 1, 1, 0)} // its own parent
	for i := range uint64(10) {
		cycle = append(cycle, call(2, i+1, (i+1)%10+1, 0), call(2, 100+i, i+1, 1))
	}
	deep, wide := make([]journal.Record, many), make([]journal.Record, many)
	for i := range uint64(many) {
		deep[i], wide[i] = call(3, i+1, i, 0, noTokens), call(4, i+1, 1, 0, noTokens)
	}
	deep[0] = call(3, 1, 0, 0, engine(1, 2))
	wide[0] = call(4, 1, 0, 0, engine(1, 2))
	same := make([]journal.Record, 1000)
	for i := range same {
		same[i] = call(uint64(i), 1, 0, int64(i), response("chatcmpl-1"))
	}
	touching := make([]journal.Record, 50)
	for i := range touching {
		touching[i] = call(uint64(i), 1, 0, 100*int64(i), response("chatcmpl-1"), producerOf(3), tokens(1000+int64(i), 1))
	}
	future := func(ns int64) func(*journal.Inference) { return func(r *journal.Inference) { r.Start, r.End = ns, ns } }
	for _, c := range []struct {
		why     string
		opt     Options
		records []journal.Record
		rows    int64
		lost    loss
		count   int64
	}{
		{"parents in a cycle: every one a root; leaves below are rows", Options{}, cycle, 11, lostCycle, 11},
		{"one chain of all spans: only its leaf is a row", Options{}, deep, 1, loss{}, 0},
		{"one span is the parent of all others, which have no tokens", Options{}, wide, 0, lostTokens, int64(many) - 1},
		{"more spans than the limit: each by itself", Options{MaxTraceSpans: 100}, deep[:200], 1, lostAncestry, 1},
		{"one response id for all", Options{}, same, 1000, lostResponse, 1},
		{"one response id for a few, of different lengths, each beginning when the one before ends", Options{}, touching, 50, lostMixed, 1},
		{
			"impossible times",
			Options{},
			[]journal.Record{
				call(1, 1, 0, 0, future(0)), call(2, 1, 0, 0, future(-5)), call(3, 1, 0, 0, future(math.MaxInt64)),
				call(4, 1, 0, 0, future(math.MinInt64)), call(5, 1, 0, 0), call(6, 1, 0, 0, future(1e18/2)),
			},
			1, lostTime, 5,
		},
		{"an end before the start", Options{}, []journal.Record{call(1, 1, 0, 0, lasting(-100))}, 1, lostReversed, 1},
		{
			"a row without input tokens",
			Options{},
			[]journal.Record{func() journal.Record { r := replayed(t, "r", 1, 1, 1, 0); r.InputLength = opt[int64](0); return r }()},
			0, lostInvalid, 1,
		},
		{
			"a timestamp that is not a number",
			Options{},
			[]journal.Record{func() journal.Record { r := replayed(t, "r", 1, 1, 1, 0, 4); r.Timestamp = opt(math.NaN()); return r }()},
			0, lostInvalid, 1,
		},
		{"spans without a trace id, or without a span id: rows that do not name them", Options{}, []journal.Record{call(0, 1, 0, 0), call(1, 0, 0, 0)}, 2, loss{}, 0},
	} {
		m, res := compileBytes(t, c.opt, journalOf(c.records...))
		for name := range m {
			if !strings.HasSuffix(name, " meta") {
				m.rows(t, name) // what is written can be read
			}
		}
		equal(t, c.why+": rows", c.rows, res.Traces[0].Meta.Rows)
		equal(t, c.why+": counted", c.count, dropped(res.Traces[0].Meta.Dropped, c.lost))
	}
}

// TestMemoryIsBounded compiles far more than the limit of memory, and watches the heap meanwhile.
func TestMemoryIsBounded(t *testing.T) {
	const requests, limit = 20_000, 2 << 20
	cells := make([]uint64, 128)
	b := []byte(header)
	for i := range uint64(requests) {
		r := call(i+1, 1, 0, int64(i), inSession(journal.Session(i/3+1)), func(r *journal.Inference) {
			r.Identity, r.Domain = journal.Text, 9
			for j := range cells {
				cells[j] = uint64(j)<<20 + i%10 // few distinct ones: their positions are kept
			}
			r.Chain.Cells, r.Chain.Bytes = cells, 128*128
		})
		b = appendFrame(b, journal.AppendRecord(nil, r))
	}
	runtime.GC()
	var before, during runtime.MemStats
	runtime.ReadMemStats(&before)
	peak := uint64(0)
	sink := func(p Partition) (TraceWriter, error) {
		runtime.GC()
		runtime.ReadMemStats(&during)
		peak = max(during.HeapAlloc, before.HeapAlloc) - before.HeapAlloc
		return discard{}, nil
	}
	res, err := Compile(t.Context(), Options{Memory: limit, TempDir: t.TempDir()}, sink, buffer("j", b))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "rows", int64(requests), res.Traces[0].Meta.Rows)
	runtime.KeepAlive(b)
	if len(b) < 4*limit || peak > 2*limit || peak == 0 {
		t.Errorf("%d bytes of journal took %d bytes of memory under a limit of %d", len(b), peak, limit)
	}
}

type discard struct{}

func (discard) Write(*mooncake.Row) error   { return nil }
func (discard) Commit(*mooncake.Meta) error { return nil }
func (discard) Close() error                { return nil }

// checkTrace checks the properties that every trace of Compile has.
func checkTrace(t *testing.T, name string, rows []*mooncake.Row, meta *mooncake.Meta) {
	t.Helper()
	identities := int64(0)
	for _, n := range meta.Identity {
		identities += n
	}
	if meta.Rows != int64(len(rows)) || meta.Rows != identities {
		t.Errorf("%s: %d rows, %d in the sidecar, %d by identity", name, len(rows), meta.Rows, identities)
	}
	next := uint64(0)
	for _, r := range rows {
		for _, id := range r.HashIDs {
			if id > next {
				t.Fatalf("%s: id %d before %d", name, id, next)
			}
			next = max(next, id+1)
		}
	}
}

// BenchmarkCompile compiles 100,000 requests with a link each, half of them with 16 blocks, from memory, and discards the trace.
func BenchmarkCompile(b *testing.B) {
	const requests = 100_000
	j := []byte(header)
	rng := rand.New(rand.NewPCG(1, 2))
	ids := make([]uint64, 16)
	for i := range uint64(requests) {
		r := call(i+1, 2, 1, int64(i), tokens(16*512, 100))
		if i%2 == 0 {
			for k := range ids {
				if ids[k] = rng.Uint64(); k < 8 {
					ids[k] = i%1000*8 + uint64(k)
				}
			}
			engine(ids...)(r)
		}
		for _, rec := range []journal.Record{r, link(i+1, 1, 0, journal.Session(i/4+1))} {
			j = appendFrame(j, journal.AppendRecord(nil, rec))
		}
	}
	for _, limit := range []int{DefaultMemory, 8 << 20} {
		b.Run(fmt.Sprintf("memory=%dMiB", limit>>20), func(b *testing.B) {
			b.SetBytes(int64(len(j)))
			b.ReportAllocs()
			stop := make(chan struct{})
			peak := make(chan uint64)
			go func() {
				tick, top := time.NewTicker(5*time.Millisecond), uint64(0)
				for {
					select {
					case <-tick.C:
						var m runtime.MemStats
						runtime.ReadMemStats(&m)
						top = max(top, m.HeapInuse)
					case <-stop:
						tick.Stop()
						peak <- top
						return
					}
				}
			}()
			sink := func(Partition) (TraceWriter, error) { return discard{}, nil }
			for b.Loop() {
				res, err := Compile(b.Context(), Options{Memory: limit, TempDir: b.TempDir()}, sink, buffer("j", j))
				if err != nil || res.Traces[0].Meta.Rows != requests {
					b.Fatal(err, res)
				}
			}
			close(stop)
			b.ReportMetric(float64(<-peak-uint64(len(j)))/(1<<20), "peak-MiB")
			b.ReportMetric(requests*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
