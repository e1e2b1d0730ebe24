// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

const production = "production"

// line has the relevant fields of a row: its span, timestamp, lengths and ids.
func line(r *mooncake.Row) string {
	return fmt.Sprintf("%d/%d %g %d %d %v", r.OTel.TraceID[15], r.OTel.SpanID[7], r.Timestamp.V, r.InputLength.V, r.OutputLength.V, r.HashIDs)
}

func lines(rows []*mooncake.Row) []string {
	out := []string{}
	for _, r := range rows {
		out = append(out, line(r))
	}
	return out
}

func link(trace, span, parent uint64, s journal.Session) *journal.Link {
	return &journal.Link{Span: ref(trace, span), Parent: sid(parent), Session: s}
}

// TestGroups tests step 3: which spans become rows. The brackets in a line contain the ids.
func TestGroups(t *testing.T) {
	for _, c := range []struct {
		why     string
		records []journal.Record
		want    []string
		merged  int64
		failed  int64
	}{
		{
			"a client, an HTTP span, a gateway and an engine are one request, that of the engine",
			[]journal.Record{
				call(1, 1, 9, 0), link(1, 2, 1, 0), call(1, 3, 2, 5), call(1, 4, 3, 7, tokens(600, 7)),
			},
			[]string{"1/4 0 600 7 []"},
			2, 0,
		},
		{
			"two of three attempts below one call fail",
			[]journal.Record{call(1, 1, 0, 0), call(1, 2, 1, 1, failed, noTokens), call(1, 3, 1, 2, failed, noTokens), call(1, 4, 1, 3)},
			[]string{"1/4 0 1000 10 []"},
			1, 2,
		},
		{
			"a failed client above an engine that served is a row: the engine had the work",
			[]journal.Record{call(1, 1, 0, 0, failed), call(1, 2, 1, 1)},
			[]string{"1/2 0 1000 10 []"},
			1, 0,
		},
		{
			"two calls side by side below a link are two requests",
			[]journal.Record{link(1, 1, 0, 0), call(1, 2, 1, 0), call(1, 3, 1, 4)},
			[]string{"1/2 0 1000 10 []", "1/3 4 1000 10 []"},
			0, 0,
		},
		{
			"the leaf gets the ids and tokens that it lacks from the one span above",
			[]journal.Record{call(1, 1, 0, 0, engine(5, 6)), link(1, 2, 1, 0), call(1, 3, 2, 1, noTokens)},
			[]string{"1/3 0 1000 10 [0 1]"},
			1, 0,
		},
		{
			"ids come from the nearest span above that has ids, tokens from the nearest that has tokens",
			[]journal.Record{
				call(1, 1, 0, 0, engine(8, 9)), call(1, 2, 1, 1, engine(5, 6), noTokens), call(1, 3, 2, 2, noTokens),
				call(2, 1, 0, 9, engine(5, 6)),
			},
			[]string{"1/3 0 1000 10 [0 1]", "2/1 7 1000 10 [0 1]"},
			2, 0,
		},
		{
			"tokens of a span above two leaves are those of neither",
			[]journal.Record{call(1, 1, 0, 0, engine(5, 6)), call(1, 2, 1, 1, noTokens), call(1, 3, 1, 2)},
			[]string{"1/3 0 1000 10 [0 1]"},
			1, 0,
		},
		{
			"the same response id at the same time in two OTel traces is one request: the shorter span is nearer to the engine",
			[]journal.Record{
				call(1, 1, 0, 0, response("x"), lasting(100), engine(5, 6)), call(2, 2, 0, 10, response("x"), lasting(80), noTokens),
			},
			[]string{"2/2 0 1000 10 [0 1]"},
			1, 0,
		},
		{
			"the response id of the client is that of its gateway, too",
			[]journal.Record{
				call(1, 1, 0, 0, response("x")), call(1, 2, 1, 5, lasting(90)), call(2, 3, 0, 10, response("x"), lasting(80)),
			},
			[]string{"2/3 0 1000 10 []"},
			2, 0,
		},
		{
			"the same response id at another time is another request: some servers send the same id in all responses",
			[]journal.Record{call(1, 1, 0, 0, response("x")), call(2, 2, 0, 101, response("x"))},
			[]string{"1/1 0 1000 10 []", "2/2 101 1000 10 []"},
			0, 0,
		},
		{
			"a content record is the prompt of its parent",
			[]journal.Record{
				call(1, 1, 0, 0), &journal.Content{Span: ref(1, 2), Parent: sid(1), Start: 0, Prompt: journal.Prompt{Identity: journal.Engine, HashIDs: []uint64{5, 6}, BlockSize: 512}},
			},
			[]string{"1/1 0 1000 10 [0 1]"},
			0, 0,
		},
		{
			"the client's content and the gateway's usage are of one request",
			[]journal.Record{
				call(1, 1, 0, 0, noTokens), call(1, 2, 1, 1),
				&journal.Content{Span: ref(1, 3), Parent: sid(1), Start: 0, Prompt: journal.Prompt{Identity: journal.Engine, HashIDs: []uint64{5, 6}, BlockSize: 512}},
			},
			[]string{"1/2 0 1000 10 [0 1]"},
			1, 0,
		},
		{
			"times decide the order of rows, then trace and span id; digits below 1 ms stay",
			[]journal.Record{call(2, 1, 0, 7), call(1, 3, 0, 7), call(1, 2, 0, 7), func() journal.Record { r := call(3, 1, 0, 0); r.Start += 250_001; return r }()},
			[]string{"3/1 0 1000 10 []", "1/2 6.749999 1000 10 []", "1/3 6.749999 1000 10 []", "2/1 6.749999 1000 10 []"},
			0, 0,
		},
	} {
		m, res := compileBytes(t, Options{}, journalOf(c.records...))
		equal(t, c.why, c.want, lines(m.rows(t, production)))
		if len(res.Traces) != 1 {
			t.Fatalf("%s: %d traces", c.why, len(res.Traces))
		}
		equal(t, c.why+": merged", c.merged, res.Traces[0].Merged)
		equal(t, c.why+": failed", c.failed, dropped(res.Traces[0].Meta.Dropped, lostFailed))
		equal(t, c.why+": sidecar", res.Traces[0].Meta.Dropped, m.meta(t, production).Dropped)
		equal(t, c.why+": time base", epoch/1e9, res.Traces[0].Meta.TimeBase.Unix())
	}
}

// TestDedupe tests step 2: which record of one span is used.
func TestDedupe(t *testing.T) {
	raw := call(1, 1, 0, 0, tokens(600, 1), cached(3), func(r *journal.Inference) { r.Model, r.Session = name(t, "m"), 4; r.Response = journal.ResponseOf("x") })
	annotated := call(1, 1, 0, 0, tokens(700, 2), engine(5, 6))
	more := call(1, 1, 0, 0, tokens(800, 3), engine(5, 6), cached(0))
	twin := call(1, 1, 0, 0, tokens(700, 3), engine(5, 6))
	seen := call(1, 1, 0, 0, tokens(700, 5), func(r *journal.Inference) { r.Identity = journal.None })
	content := &journal.Content{Span: ref(1, 1), Parent: sid(2), Prompt: annotated.Prompt}
	for _, c := range []struct {
		why     string
		records []journal.Record
		want    int64 // output_length of the row
		copies  int64
	}{
		{"annotated rather than raw", []journal.Record{raw, annotated}, 2, 0},
		{"seen by a receiver rather than raw", []journal.Record{raw, seen}, 5, 0},
		{"both annotated: more fields", []journal.Record{annotated, more}, 3, 0},
		{"both annotated, with the same number of fields: the one whose bytes come first", []journal.Record{twin, annotated}, 2, 0},
		{"any other record rather than a link", []journal.Record{link(1, 1, 0, 0), raw}, 1, 0},
		{"an inference span rather than content", []journal.Record{content, raw}, 1, 0},
		{"delivered twice", []journal.Record{annotated, annotated}, 2, 1},
	} {
		for range 2 {
			m, res := compileBytes(t, Options{}, journalOf(c.records...))
			rows := m.rows(t, production)
			if len(rows) != 1 || rows[0].OutputLength.V != c.want {
				t.Errorf("%s: %v", c.why, lines(rows))
			}
			equal(t, c.why+": duplicates", 1-c.copies, dropped(res.Traces[0].Meta.Dropped, lostDuplicate))
			equal(t, c.why+": copies", c.copies, res.Copies)
			slices.Reverse(c.records)
		}
	}
}

// TestPartitions tests step 1, and what is left out of replays.
func TestPartitions(t *testing.T) {
	warm := replayed(t, "b", 0, 30, 1, 0, 7)
	warm.Warmup = true
	bad := replayed(t, "b", 2, 31, 1, 0, 7)
	bad.Failed = true
	ended := func(row int64, e journal.Ending) journal.Record {
		r := replayed(t, "b", row, uint64(40+row), 1, 0, 7)
		r.Failed, r.Ending = true, e
		return r
	}
	records := []journal.Record{
		call(1, 1, 0, 0),
		// Run a: row 1 comes before row 0, which is below a session's root. Engine spans have no run id. The times of rows are their
		// timestamps, not the starts of the spans.
		replayed(t, "a", 1, 20, 1, 0, 500, 501), call(20, 2, 1, 3), link(20, 3, 2, 0),
		replayed(t, "a", 0, 21, 2, 1, 500, 600), link(21, 1, 0, 9), call(21, 3, 2, 3, response("x")),
		call(20, 9, 77, 3), // its parent was never sent
		replayed(t, "a", 1, 22, 1, 0, 500, 501),
		// Run b.
		replayed(t, "b", 1, 32, 1, 0, 500), warm, bad, call(31, 2, 1, 3),
		ended(3, journal.Skipped), ended(4, journal.Skipped), ended(5, journal.Cancelled), ended(6, journal.Disconnected),
		call(33, 1, 0, 3, func(r *journal.Inference) { r.Run = name(t, "b") }), // calibration
		// Without a run id, but a row.
		func() journal.Record { r := replayed(t, "", 4, 40, 1, 0, 9); r.Link = ref(50, 51); return r }(),
	}
	m, res := compileBytes(t, Options{}, journalOf(records...))
	equal(t, "production", []string{"1/1 0 1000 10 []"}, lines(m.rows(t, production)))
	equal(t, "run a", []string{"21/2 0 1024 3 [0 1]", "20/1 10 1024 3 [0 2]"}, lines(m.rows(t, "run a")))
	equal(t, "run b", []string{"32/1 10 512 3 [0]"}, lines(m.rows(t, "run b")))
	equal(t, "no run id", []string{"50/51 40 512 3 [0]"}, lines(m.rows(t, "a replay without a run id")))

	var names []string
	for _, tr := range res.Traces {
		names = append(names, tr.name())
	}
	equal(t, "order", []string{production, "a replay without a run id", "run a", "run b"}, names)
	for _, c := range []struct {
		trace int
		l     loss
		want  int64
	}{
		{2, lostRepeated, 1},
		{2, lostNoRow, 1},
		{3, lostWarmup, 1},
		{3, lostFailed, 1},
		{3, lostNoRow, 1},
		{3, lostSkipped, 2},
		{3, lostCancelled, 1},
		{3, lostCut, 1},
	} {
		equal(t, names[c.trace]+": "+c.l.reason, c.want, dropped(res.Traces[c.trace].Meta.Dropped, c.l))
	}
	equal(t, "merged", []int64{0, 0, 2, 1}, []int64{res.Traces[0].Merged, res.Traces[1].Merged, res.Traces[2].Merged, res.Traces[3].Merged})

	for policy, want := range map[Replays][]string{
		ReplaysDrop: {production},
		ReplaysOnly: {"a replay without a run id", "run a", "run b"},
	} {
		only, res := compileBytes(t, Options{Replays: policy}, journalOf(records...))
		for _, n := range names {
			if slices.Contains(want, n) {
				equal(t, string(policy)+": "+n, string(m[n]), string(only[n]))
			} else if only[n] != nil {
				t.Errorf("%s: %s was written", policy, n)
			}
		}
		left := int64(0)
		for _, tr := range res.Traces {
			left += dropped(tr.Meta.Dropped, lostPolicy)
		}
		if left == 0 {
			t.Errorf("%s: nothing is counted as dropped", policy)
		}
	}
	_, res = compileBytes(t, Options{MaxRuns: 2}, journalOf(records...))
	if n := dropped(res.Dropped, lostRun); n == 0 || len(res.Traces) != 3 {
		t.Errorf("limit of 2 runs: %d traces, %d spans dropped", len(res.Traces), n)
	}
}

// TestSessions tests step 4 without content, with blocks of 100 tokens computed by hand.
func TestSessions(t *testing.T) {
	const s, other = journal.Session(0xabc), journal.Session(0xdef)
	records := []journal.Record{
		link(1, 1, 0, s), link(1, 2, 1, 0),
		call(1, 3, 2, 0, tokens(250, 90)),                   // blocks 0 1 2; the last one holds 50
		call(1, 4, 2, 1000, tokens(410, 90)),                // 0 1 shared; block 2 was full only with the output
		call(1, 5, 2, 2000, tokens(600, 1), cached(310)),    // three blocks were cached
		call(1, 6, 2, 2050, tokens(120, 1)),                 // the history was cut: one full block is left; begins before the previous turn ends
		call(2, 1, 0, 500, tokens(90, 5), inSession(other)), // less than a block
		call(2, 2, 0, 3000, tokens(200, 5), inSession(other)),
		call(3, 1, 0, 5000, tokens(100, 5)), // no session
	}
	m, res := compileBytes(t, Options{BlockSize: 100}, journalOf(records...))
	rows := m.rows(t, production)
	equal(t, "rows", []string{
		"1/3 0 250 90 [0 1 2]",
		"2/1 500 90 5 [3]",
		"1/4 1000 410 90 [0 1 4 5 6]",
		"1/5 2000 600 1 [0 1 4 7 8 9]",
		"1/6 2050 120 1 [0 10]",
		"2/2 3000 200 5 [11 12]",
		"3/1 5000 100 5 []",
	}, lines(rows))
	var delays, sessions []string
	for _, r := range rows {
		d := "-"
		if r.Delay.Set {
			d = fmt.Sprint(r.Delay.V)
		}
		delays, sessions = append(delays, d), append(sessions, strings.TrimLeft(r.SessionID, "0"))
	}
	equal(t, "delays", []string{"-", "-", "900", "900", "-", "2400", "-"}, delays)
	equal(t, "sessions", []string{"abc", "def", "abc", "abc", "abc", "def", ""}, sessions)
	meta := res.Traces[0].Meta
	equal(t, "identity", map[string]int64{"structure": 6, "lengths": 1}, meta.Identity)
	equal(t, "mode", mooncake.SessionFull, meta.SessionMode)
	equal(t, "unannotated", int64(7), dropped(meta.Dropped, lostRawPrompts))

	// One request with content: the others of its session are lengths.
	records = append(records, call(1, 7, 2, 9000, engine(1, 2), func(r *journal.Inference) { r.BlockSize = 100 }))
	_, res = compileBytes(t, Options{BlockSize: 100}, journalOf(records...))
	equal(t, "identity with content", map[string]int64{"structure": 2, "lengths": 5, "engine": 1}, res.Traces[0].Meta.Identity)
}

// TestLateContent: a session counts as one with content if any of its requests has content, whether compile sorts in memory or on disk.
func TestLateContent(t *testing.T) {
	const sessions, turns = 300, 3
	var records []journal.Record
	for i := range uint64(sessions) {
		for turn := range uint64(turns) {
			of := []func(*journal.Inference){tokens(250, 90), inSession(journal.Session(1 + i))}
			if i%turns == turn && i%2 == 0 { // half of the sessions have it, at any turn
				of = append(of, engine(1, i), func(r *journal.Inference) { r.BlockSize = 100 })
			}
			records = append(records, call(turns*i+turn, 1, 0, int64(1000*turn), of...))
		}
	}
	for _, memory := range []int{0, 16 << 10} {
		_, res := compileBytes(t, Options{BlockSize: 100, Memory: memory}, journalOf(records...))
		equal(t, fmt.Sprintf("identity with %d bytes", memory),
			map[string]int64{"structure": sessions / 2 * turns, "lengths": sessions / 2 * (turns - 1), "engine": sessions / 2}, res.Traces[0].Meta.Identity)
	}
}

// TestText tests step 4 with text: equal prompts have the same ids, a prompt that continues another shares its blocks, and impossible cells
// are counted.
func TestText(t *testing.T) {
	text := strings.Repeat("It was the best of times, it was the worst of times. ", 400) // 21,200 bytes
	chainOf := func(n int) func(*journal.Inference) {
		c := chain(t, text[:n])
		return func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Text, Domain: 9, Chain: c} }
	}
	m, res := compileBytes(t, Options{}, journalOf(
		call(1, 1, 0, 0, chainOf(8192), tokens(2048, 1)), // 4 blocks
		call(2, 1, 0, 1, chainOf(21000), tokens(5250, 1)),
		call(3, 1, 0, 2, chainOf(8192), tokens(2048, 1)),
		call(4, 1, 0, 3, func(r *journal.Inference) {
			r.Prompt = journal.Prompt{Identity: journal.Text, Domain: 9}
			r.Chain.Cells, r.Chain.Bytes = []uint64{1, 2}, 7
		}),
	))
	rows := m.rows(t, production)
	if len(rows) != 4 || len(rows[0].HashIDs) != 4 || len(rows[1].HashIDs) != 11 {
		t.Fatalf("rows %v", lines(rows))
	}
	equal(t, "the same prompt", rows[0].HashIDs, rows[2].HashIDs)
	shared := 0
	for shared < 4 && rows[0].HashIDs[shared] == rows[1].HashIDs[shared] {
		shared++
	}
	if shared < 3 {
		t.Errorf("%d blocks shared of a prompt that continues", shared)
	}
	meta := res.Traces[0].Meta
	equal(t, "identity", map[string]int64{"text": 3, "lengths": 1}, meta.Identity)
	equal(t, "impossible cells", int64(1), dropped(meta.Dropped, lostCells))
	equal(t, "domains", []string{"00000009"}, meta.HashDomains)
	if meta.Digests.Reason == "" || !strings.Contains(meta.Digests.Reason, "line 4") {
		t.Errorf("digests: %q", meta.Digests.Reason)
	}
}

func TestIDs(t *testing.T) {
	size := func(n uint32) func(*journal.Inference) { return func(r *journal.Inference) { r.BlockSize = n } }
	domain := func(d journal.Domain) func(*journal.Inference) { return func(r *journal.Inference) { r.Domain = d } }
	m, res := compileBytes(t, Options{}, journalOf(
		call(1, 1, 0, 0, engine(1<<63, 6)),
		call(2, 1, 0, 1, engine(1<<63, 6), domain(8)),     // another domain: nothing is shared
		call(3, 1, 0, 2, engine(1<<63)),                   // full blocks only
		call(4, 1, 0, 3, engine(1<<63, 1<<64-1, 9)),       // one too many
		call(5, 1, 0, 4, engine(1<<63, 6), size(24)),      // of a size that no trace has
		call(6, 1, 0, 5, engine(1<<63), tokens(1<<30, 1)), // more than any prompt has
		call(7, 1, 0, 6, engine(1<<63), noTokens),
	))
	equal(t, "rows", []string{
		"1/1 0 1000 10 [0 1]", "2/1 1 1000 10 [2 3]", "3/1 2 1000 10 [0 4]", "4/1 3 1000 10 [0 5]", "5/1 4 1000 10 []",
	}, lines(m.rows(t, production)))
	equal(t, "dropped", []mooncake.Dropped{
		{What: "hash ids", Reason: "more than the prompt has blocks", Count: 1},
		{What: "hash ids", Reason: "other block size", Count: 1},
		{What: "rows", Reason: "implausible token counts", Count: 1},
		{What: "rows", Reason: "no token counts", Count: 1},
	}, res.Traces[0].Meta.Dropped)
}

func TestEstimate(t *testing.T) {
	text := strings.Repeat("abcdefgh", 1024) // 8,192 bytes, and 6 of "user\n" and "\n"
	withText := func(r *journal.Inference) {
		r.Prompt = journal.Prompt{Identity: journal.Text, Domain: 9, Chain: chain(t, text)}
	}
	records := []journal.Record{
		call(1, 1, 0, 0, withText, tokens(4099, 10)), // half a token per byte
		call(2, 1, 0, 1, tokens(500, 21)),
		call(3, 1, 0, 2, withText, noTokens),
		call(4, 1, 0, 3, engine(1, 2, 3), noTokens),
		call(5, 1, 0, 4, noTokens, inSession(5)),
	}
	m, res := compileBytes(t, Options{MissingTokens: MissingEstimate}, journalOf(records...))
	got := m.rows(t, production)
	for i, want := range []string{"4099 10", "500 21", "4099 16", "1280 16"} {
		if l := fmt.Sprintf("%d %d", got[i].InputLength.V, got[i].OutputLength.V); l != want {
			t.Errorf("row %d: %s, want %s", i, l, want)
		}
	}
	equal(t, "nothing to go by", int64(1), dropped(res.Traces[0].Meta.Dropped, lostTokens))
	_, res = compileBytes(t, Options{}, journalOf(records...))
	equal(t, "dropped", int64(3), dropped(res.Traces[0].Meta.Dropped, lostTokens))
}

func TestPlainFormat(t *testing.T) {
	delayed := replayed(t, "a", 3, 9, 1, 0, 5)
	delayed.Timestamp, delayed.Offset, delayed.Spread = mooncake.Opt[float64]{}, opt(2.5), opt(0.25)
	m, _ := compileBytes(t, Options{Format: FormatMooncake}, journalOf(
		call(1, 1, 0, 0, inSession(4), engine(9, 8)), call(2, 1, 0, 3, func(r *journal.Inference) { r.Model = name(t, "m") }), delayed,
	))
	equal(t, "production", `{"timestamp": 0, "input_length": 1000, "output_length": 10, "hash_ids": [0, 1]}
{"timestamp": 3, "input_length": 1000, "output_length": 10, "hash_ids": [2, 3]}
`, string(m[production]))
	equal(t, "replay", `{"timestamp": 2250, "input_length": 512, "output_length": 3, "hash_ids": [0]}
`, string(m["run a"]))
}

func TestErrors(t *testing.T) {
	broken := errors.New("disk full")
	one := buffer("j", journalOf(call(1, 1, 0, 0)))
	for _, c := range []struct {
		why  string
		opt  Options
		sink Sink
		src  Source
		want string
	}{
		{"a missing journal", Options{}, memory{}.sink, FileSource("/nowhere/j"), "no such file"},
		{"a file that is not a journal", Options{}, memory{}.sink, buffer("j", []byte("text")), "not a journal"},
		{"a sink that fails", Options{}, func(Partition) (TraceWriter, error) { return nil, broken }, one, "production cannot be started: disk full"},
		{"a folder that does not exist", Options{}, Files("/nowhere/t.jsonl"), one, "production cannot be started: trace file cannot be created"},
		{"an unknown choice for replays", Options{Replays: "all"}, memory{}.sink, one, "replays"},
		{"an unknown format", Options{Format: "csv"}, memory{}.sink, one, "format"},
		{"an unknown choice for missing tokens", Options{MissingTokens: "guess"}, memory{}.sink, one, "missing tokens"},
		{"negative memory", Options{Memory: -1}, memory{}.sink, one, "memory"},
		{"a missing temporary folder", Options{TempDir: "/nowhere", Memory: 1}, memory{}.sink, buffer("j", journalOf(call(1, 1, 0, 0), call(1, 2, 0, 0))), "temporary file"},
	} {
		if _, err := Compile(t.Context(), c.opt, c.sink, c.src); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.why, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if _, err := Compile(ctx, Options{}, memory{}.sink, one); !errors.Is(err, broken) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := Compile(t.Context(), Options{}, memory{}.sink); err == nil || !strings.Contains(err.Error(), "no journal to compile: give at least one") {
		t.Errorf("no journal: %v", err)
	}
	closed := false
	src := Source{Name: "j", Open: func() (io.ReadCloser, error) { return &failing{&closed}, nil }}
	if _, err := Compile(t.Context(), Options{}, memory{}.sink, src); !errors.Is(err, io.ErrClosedPipe) || !closed {
		t.Errorf("reading fails: %v, closed %v", err, closed)
	}
}

type failing struct{ closed *bool }

func (f *failing) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (f *failing) Close() error             { *f.closed = true; return nil }

func TestDamagedJournals(t *testing.T) {
	a, b := journalOf(call(1, 1, 0, 0), call(2, 1, 0, 1), call(3, 1, 0, 2)), journalOf(call(4, 1, 0, 3), call(5, 1, 0, 4))
	a[len(header)+5] ^= 4
	m, res := compileBytes(t, Options{}, a, b[:len(b)-9])
	equal(t, "rows", 3, len(m.rows(t, production)))
	equal(t, "damage", []journal.Damage{{Journal: "test", Offset: int64(len(header)), Bytes: res.DamageBytes}}, res.Damage)
	equal(t, "torn", int64(1), res.Torn.Records)
	for _, list := range [][]mooncake.Dropped{res.Dropped, m.meta(t, production).Dropped} {
		if dropped(list, lostTorn) != 1 || dropped(list, lostDamaged) != 1 {
			t.Errorf("dropped: %v", list)
		}
	}
}

// TestLeftOut: a file that nobody named and that is no journal, or was removed, is counted, also by shards; one that was named is an error.
func TestLeftOut(t *testing.T) {
	other := buffer("other", []byte("moonloop-journal 3\n and more"))
	good := buffer("good", journalOf(call(1, 1, 0, 0)))
	if _, err := Compile(t.Context(), Options{}, memory{}.sink, good, other); !errors.Is(err, journal.ErrNotJournal) {
		t.Errorf("a journal that was named: %v", err)
	}
	gone := FileSource(filepath.Join(t.TempDir(), "gone"))
	if _, err := Compile(t.Context(), Options{}, memory{}.sink, good, gone); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed journal that was named: %v", err)
	}
	other.Optional, gone.Optional, gone.Size = true, true, 7
	m := memory{}
	res, err := Compile(t.Context(), Options{}, m.sink, other, good, gone)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "journals", int64(1), res.Journals)
	if len(res.LeftOut) != 2 || res.LeftOut[0].Journal != "other" || res.LeftOut[0].Bytes != other.Size || !res.LeftOut[1].Removed {
		t.Errorf("left out: %+v", res.LeftOut)
	}
	for _, list := range [][]mooncake.Dropped{res.Dropped, m.meta(t, production).Dropped} {
		if dropped(list, lostForeign) != 1 || dropped(list, lostForeignOf) != other.Size || dropped(list, lostRemoved) != 1 || dropped(list, lostRemovedOf) != gone.Size {
			t.Errorf("dropped: %v", list)
		}
	}
	sharded, err := CompileShard(t.Context(), Options{}, Shard{Of: 1, Dir: t.TempDir()}, memory{}.sink, other, good, gone)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "the result of shards", res.LeftOut, sharded.LeftOut)
	equal(t, "what shards dropped", res.Dropped, sharded.Dropped)
}

func TestFiles(t *testing.T) {
	for _, c := range []struct{ name, run, want string }{
		{"d/out.jsonl", "ab-1.2", "d/out.run-ab-1.2.jsonl"},
		{"out.jsonl.gz", "x", "out.run-x.jsonl.gz"},
		{"out", "x", "out.run-x"},
		{"out.jsonl", "../x", "out.run-.._x-"},
		{"out.jsonl", "", "out.run--"},
	} {
		got := RunFile(c.name, name(t, c.run))
		if c.run == "../x" || c.run == "" {
			got = got[:len(c.want)] // then a hash
		}
		equal(t, c.run, c.want, got)
	}
	if RunFile("o", name(t, "a/b")) == RunFile("o", name(t, "a:b")) {
		t.Error("two runs, one file")
	}
	dir := t.TempDir()
	src := buffer("j", journalOf(call(1, 1, 0, 0), replayed(t, "r1", 0, 2, 1, 0, 7)))
	if _, err := Compile(t.Context(), Options{TempDir: dir}, Files(dir+"/out.jsonl"), src); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"out.jsonl", "out.run-r1.jsonl"} {
		trace, err := mooncake.Open(t.Context(), dir+"/"+f, mooncake.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trace.Read(); err != nil || trace.Meta() == nil || trace.Meta().Rows != 1 {
			t.Errorf("%s: %v, sidecar %v", f, err, trace.Meta())
		}
		trace.Close()
	}
	if diff := cmp.Diff(4, countFiles(t, dir)); diff != "" {
		t.Errorf("files left behind (-want +got):\n%s", diff)
	}
}
