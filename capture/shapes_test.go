// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// The shapes of records of real producers, one by one, and what Compile makes of them.

func named(t testing.TB, asked, answered string) func(*journal.Inference) {
	t.Helper()
	return func(r *journal.Inference) { r.Model, r.Answered = name(t, asked), name(t, answered) }
}

func joined(trace, span uint64) func(*journal.Inference) {
	return func(r *journal.Inference) { r.Joined = ref(trace, span) }
}

func clock(n uint64) func(*journal.Inference) { return func(r *journal.Inference) { r.Clock = n } }
func producerOf(n uint64) func(*journal.Inference) {
	return func(r *journal.Inference) { r.Producer = n }
}

func written(n int64) func(*journal.Inference) {
	return func(r *journal.Inference) { r.CacheWriteTokens = opt(n) }
}
func exclusive(r *journal.Inference) { r.Exclusive = true }
func estimate(n int64) func(*journal.Inference) {
	return func(r *journal.Inference) { r.OutputEstimate = opt(n) }
}

func tool(trace, span, parent uint64) *journal.Link {
	return &journal.Link{Span: ref(trace, span), Parent: sid(parent), Border: true}
}

// TestShapes: which rows result from what several spans report about one request.
func TestShapes(t *testing.T) {
	for _, c := range []struct {
		why     string
		records []journal.Record
		want    []string
		lost    map[loss]int64
	}{
		{
			"an engine's span that only names its client's by a link is the same request",
			[]journal.Record{call(1, 1, 0, 0, engine(5, 6)), call(2, 1, 0, 3, joined(1, 1), lasting(90))},
			[]string{"2/1 0 1000 10 [0 1]"},
			nil,
		},
		{
			"an engine's span whose link names the HTTP span below the client's is the same request",
			[]journal.Record{call(1, 1, 0, 0, engine(5, 6)), link(1, 2, 1, 0), call(2, 1, 0, 3, joined(1, 2), lasting(90))},
			[]string{"2/1 0 1000 10 [0 1]"},
			nil,
		},
		{
			"a link to a request that had ended before points to a predecessor, not to the same request",
			[]journal.Record{call(1, 1, 0, 0), call(2, 1, 0, 300, joined(1, 1))},
			[]string{"1/1 0 1000 10 []", "2/1 300 1000 10 []"},
			nil,
		},
		{
			"a link to a span that is missing changes nothing",
			[]journal.Record{call(2, 1, 0, 3, joined(1, 1))},
			[]string{"2/1 0 1000 10 []"},
			nil,
		},
		{
			"neither a tool that a request runs, nor the request that the tool makes, is a part of the first request",
			[]journal.Record{call(1, 1, 0, 0, lasting(900)), tool(1, 2, 1), link(1, 3, 2, 0), call(1, 4, 3, 50, tokens(600, 7))},
			[]string{"1/1 0 1000 10 []", "1/4 50 600 7 []"},
			nil,
		},
		{
			"a tool next to a request does not separate it from the request above",
			[]journal.Record{call(1, 1, 0, 0, lasting(900)), tool(1, 2, 1), call(1, 4, 1, 50, tokens(600, 7))},
			[]string{"1/4 0 600 7 []"},
			nil,
		},
		{
			"two counts of a producer are below its cached tokens: all its counts exclude them",
			[]journal.Record{
				call(1, 1, 0, 0, producerOf(5), exclusive, tokens(3000, 1), cached(2048)), call(2, 1, 0, 1, producerOf(5), tokens(2465, 1), cached(2000), written(48)),
				call(3, 1, 0, 2, producerOf(6), tokens(2465, 1), cached(2000)), call(4, 1, 0, 3, producerOf(5), exclusive, tokens(3000, 1), written(2048)),
				call(5, 1, 0, 4, producerOf(5), tokens(2465, 1)),
			},
			[]string{"1/1 0 3000 1 []", "2/1 1 4513 1 []", "3/1 2 2465 1 []", "4/1 3 3000 1 []", "5/1 4 2465 1 []"},
			map[loss]int64{lostExclusive: 1},
		},
		{
			"one count of a producer is below its cached tokens: it may be wrong, and is counted",
			[]journal.Record{
				call(1, 1, 0, 0, producerOf(5), exclusive, tokens(3000, 1), cached(2048)), call(2, 1, 0, 1, producerOf(5), tokens(2465, 1), cached(2000), written(48)),
			},
			[]string{"1/1 0 3000 1 []", "2/1 1 2465 1 []"},
			map[loss]int64{lostUnlike: 1},
		},
		{
			"one span in two records is one span",
			[]journal.Record{
				call(1, 1, 0, 0, producerOf(5), exclusive, tokens(3000, 1), cached(2048)), call(1, 1, 0, 0, producerOf(5), exclusive, tokens(3000, 1), cached(2048), named(t, "", "m")),
				call(2, 1, 0, 1, producerOf(5), tokens(2465, 1), cached(2000)),
			},
			[]string{"1/1 0 3000 1 []", "2/1 1 2465 1 []"},
			map[loss]int64{lostUnlike: 1},
		},
		{
			"nothing is known of another model of that producer",
			[]journal.Record{
				call(1, 1, 0, 0, producerOf(5), exclusive, tokens(3000, 1), cached(2048), named(t, "a", "")),
				call(2, 1, 0, 1, producerOf(5), tokens(2465, 1), cached(2000), named(t, "b", "")),
				call(3, 1, 0, 2, producerOf(5), exclusive, tokens(3000, 1), cached(2048), named(t, "a", "")),
			},
			[]string{"1/1 0 3000 1 []", "2/1 1 2465 1 []", "3/1 2 3000 1 []"},
			nil,
		},
		{
			"a gateway whose clock is behind: the client's times count; requests that only the gateway saw are counted as uncertain",
			[]journal.Record{
				call(1, 1, 0, 20_000, clock(1)), call(1, 2, 1, 10_003, clock(2), lasting(90)),
				call(2, 1, 0, 21_000, clock(1)), call(3, 1, 0, 12_000, clock(2)),
			},
			[]string{"3/1 0 1000 10 []", "1/2 8000 1000 10 []", "2/1 9000 1000 10 []"},
			map[loss]int64{lostClock: 1},
		},
		{
			"a gateway with the same clock, or nearly: its own times count, which are nearest to the engine",
			[]journal.Record{call(1, 1, 0, 0, clock(1)), call(1, 2, 1, 4, clock(2)), call(2, 1, 0, 10, clock(1)), call(2, 2, 1, 9, clock(2))},
			[]string{"1/2 0 1000 10 []", "2/2 6 1000 10 []"},
			nil,
		},
		{
			"a clock behind another one that is behind",
			[]journal.Record{call(1, 1, 0, 20_000, clock(1)), call(1, 2, 1, 10_003, clock(2), lasting(90)), call(1, 3, 2, 10_005, clock(3), lasting(80)), call(2, 1, 0, 20_000, clock(1))},
			[]string{"1/3 0 1000 10 []", "2/1 0 1000 10 []"},
			nil,
		},
		{
			"two spans with one response id, timed by two clocks",
			[]journal.Record{call(1, 1, 0, 60, clock(1), response("x")), call(2, 1, 0, 0, clock(2), response("x"), lasting(90)), call(3, 1, 0, 60, clock(1))},
			[]string{"2/1 0 1000 10 []", "3/1 0 1000 10 []"},
			nil,
		},
	} {
		m, res := compileBytes(t, Options{}, journalOf(c.records...))
		equal(t, c.why, c.want, lines(m.rows(t, production)))
		for _, l := range []loss{lostClock, lostTokens, lostInvalid, lostExclusive, lostUnlike} {
			equal(t, c.why+": "+l.reason, c.lost[l], dropped(res.Traces[0].Meta.Dropped, l))
		}
	}
}

// TestExclusiveCounts: how many spans must show that a producer's counts exclude cached tokens.
func TestExclusiveCounts(t *testing.T) {
	for _, c := range []struct {
		spans, exclusive  int
		completed, unlike int64
	}{
		{100, 1, 0, 1}, {100, 9, 0, 9}, {100, 10, 90, 0}, {3, 2, 1, 0}, {2, 1, 0, 1}, {1, 1, 0, 0}, {100, 100, 0, 0}, {10_000, 20, 0, 20}, {10_000, 3000, 7000, 0},
	} {
		var records []journal.Record
		for i := range uint64(c.spans) {
			r := call(i+1, 1, 0, int64(i), producerOf(5), cached(900))
			if r.Exclusive = int(i) < c.exclusive; r.Exclusive {
				r.InputTokens = opt[int64](1900)
			}
			records = append(records, r)
		}
		why := fmt.Sprintf("%d of %d spans", c.exclusive, c.spans)
		m, res := compileBytes(t, Options{}, journalOf(records...))
		long := int64(0)
		for _, row := range m.rows(t, production) {
			if row.InputLength.V == 1900 {
				long++
			}
		}
		equal(t, why+": completed", c.completed, dropped(res.Traces[0].Meta.Dropped, lostExclusive))
		equal(t, why+": left as they are", c.unlike, dropped(res.Traces[0].Meta.Dropped, lostUnlike))
		equal(t, why+": rows with the cached tokens", int64(c.exclusive)+c.completed, long)
	}
}

// TestExclusiveCountsArePure: neither the order of records, nor their copies in several journals, nor shards change which producers' counts
// exclude cached tokens. The shares are near the limit, and there are more spans than are judged.
func TestExclusiveCountsArePure(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var records []journal.Record
	for producer := range uint64(12) {
		for i := range uint64(100) << (producer % 4) {
			r := call(producer<<20+i, 1, 0, int64(i), producerOf(producer+1), cached(900))
			r.Exclusive = rng.Uint64N(100) < 5+producer
			records = append(records, r)
		}
	}
	want, wantRes := compileBytes(t, Options{}, journalOf(records...))
	counts := func(res Result) [2]int64 {
		all := res.Traces[0].Meta.Dropped
		return [2]int64{dropped(all, lostExclusive), dropped(all, lostUnlike)}
	}
	if n := counts(wantRes); n[0] == 0 || n[1] == 0 {
		t.Fatalf("completed and left as they are: %v: the test needs both", n)
	}
	for round := range 6 {
		dealt := deal(rng, records, 1+rng.IntN(5))
		got, res := compileBytes(t, Options{}, dealt...)
		if round%2 == 1 {
			got, res = inShards(t, Options{}, 1+rng.IntN(4), dealt...)
		}
		equal(t, "counts", counts(wantRes), counts(res))
		for name, b := range want {
			if !bytes.Equal(b, got[name]) {
				t.Errorf("round %d: %s differs: %s", round, name, firstDifference(b, got[name]))
			}
		}
	}
}

// TestOutputEstimates: facts about one reply take precedence over the mean of all.
func TestOutputEstimates(t *testing.T) {
	noOutput := func(r *journal.Inference) { r.OutputTokens = mooncake.Opt[int64]{} }
	records := []journal.Record{
		call(1, 1, 0, 0, engine(5, 6), noOutput, estimate(40)), call(2, 1, 0, 1, engine(5, 6), noOutput),
		call(3, 1, 0, 2, engine(5, 6), tokens(1000, 7)), call(4, 1, 0, 3, engine(5, 6), noOutput, estimate(41)), call(4, 2, 1, 4, engine(5, 6), noOutput),
	}
	m, _ := compileBytes(t, Options{MissingTokens: MissingEstimate}, journalOf(records...))
	equal(t, "estimated", []string{"1/1 0 1000 40 [0 1]", "2/1 1 1000 7 [0 1]", "3/1 2 1000 7 [0 1]", "4/2 4 1000 41 [0 1]"}, lines(m.rows(t, production)))
	m, _ = compileBytes(t, Options{}, journalOf(records...))
	equal(t, "dropped", []string{"3/1 0 1000 7 [0 1]"}, lines(m.rows(t, production)))
}

// TestModels: which names are one model, for requests that all have the same text.
func TestModels(t *testing.T) {
	type request struct{ asked, answered string }
	for _, c := range []struct {
		why      string
		requests []request
		want     string // a letter for the model of each
	}{
		{"the requested name and a dated one, in the same attribute", []request{{"gpt-4o", ""}, {"gpt-4o-2024-08-06", ""}}, "AA"},
		{"the same, and the producer repeats the name as that of the reply's model", []request{{"gpt-4o", "gpt-4o"}, {"gpt-4o-2024-08-06", "gpt-4o-2024-08-06"}}, "AA"},
		{"two dates: it is unknown which of them the name without a date means", []request{{"gpt-4o", ""}, {"gpt-4o-2024-08-06", ""}, {"gpt-4o-2024-05-13", ""}}, "ABC"},
		{"two dates, of which one answers", []request{{"gpt-4o", "gpt-4o-2024-08-06"}, {"gpt-4o", ""}, {"gpt-4o-2024-08-06", ""}, {"gpt-4o-2024-05-13", ""}}, "AAAB"},
		{"Anthropic's dates, and Google's", []request{{"claude-3-haiku", ""}, {"claude-3-haiku-20240307", ""}, {"claude-3-haiku@20240307", ""}, {"g", ""}, {"g@20240307-v1:0", ""}}, "ABCDD"},
		{"sizes and versions are not dates", []request{{"m", ""}, {"m-0613", ""}, {"m-70b", ""}, {"m-2024", ""}, {"m-2024-13-01", ""}}, "ABCDE"},
		{"a name that another one answers to", []request{{"prod", "llama-3-8b"}, {"prod", ""}, {"llama-3-8b", ""}}, "AAA"},
		{"two deployments of one model", []request{{"prod", "llama-3-8b"}, {"test", "llama-3-8b"}, {"prod", ""}, {"test", ""}}, "AAAA"},
		{"a router: who answered decides", []request{{"auto", "small"}, {"auto", "large"}, {"auto", ""}, {"small", ""}, {"large", ""}}, "ABCAB"},
		{"a fallback model is not another name of the first", []request{{"first", "first"}, {"first", "second"}, {"first", ""}, {"second", ""}}, "ABAB"},
		{"a chain of names", []request{{"a", "b"}, {"b", "c"}, {"a", "c"}, {"a", ""}, {"c", ""}}, "AAAAA"},
		{"names that are told apart by case", []request{{"M", ""}, {"m", ""}}, "AB"},
	} {
		var records []journal.Record
		text := chain(t, longText(8000))
		for i, r := range c.requests {
			records = append(records, call(uint64(i+1), 1, 0, int64(i), tokens(2048, 1), named(t, r.asked, r.answered), func(r *journal.Inference) {
				r.Prompt = journal.Prompt{Identity: journal.Text, Domain: 9, Chain: text}
			}))
		}
		for round, order := range [][]journal.Record{records, reversed(records)} {
			m, _ := compileBytes(t, Options{}, journalOf(order...))
			got, byID := "", map[uint64]string{}
			for _, row := range m.rows(t, production) {
				letter := byID[row.HashIDs[0]]
				if letter == "" {
					letter = string(rune('A' + len(byID)))
					byID[row.HashIDs[0]] = letter
				}
				got += letter
			}
			equal(t, fmt.Sprint(c.why, ", order ", round), c.want, got)
		}
	}
}

// TestObservedUnderTwoNames: the prediction of production's cache treats names of one model as one, as the blocks do.
func TestObservedUnderTwoNames(t *testing.T) {
	text := chain(t, longText(8000))
	var records []journal.Record
	for i, name := range []string{"gpt-4o", "gpt-4o-2024-08-06", "gpt-4o", "other", "other"} {
		records = append(records, call(uint64(i+1), 1, 0, int64(i), tokens(2048, 1), named(t, name, ""), func(r *journal.Inference) {
			r.Prompt = journal.Prompt{Identity: journal.Text, Domain: 9, Chain: text}
			r.CachedTokens = mooncake.Some([]int64{0, 2048, 2048, 0, 2048}[i])
		}))
	}
	for format, want := range map[Format]mooncake.ObservedCache{
		FormatFull:     {Predicted: 3 * (2048 - 1), Ranged: 5}, // with ranges, a token of each prompt is left to compute
		FormatMooncake: {Predicted: 3 * 2048},
	} {
		want.Rows, want.InputTokens, want.Cached = 5, 5*2048, 3*2048
		_, res := compileBytes(t, Options{Format: format}, journalOf(records...))
		got := *res.Traces[0].Meta.ObservedCache
		got.Step, got.ByStep = want.Step, want.ByStep
		equal(t, string(format), want, got)
	}
}

func reversed(records []journal.Record) []journal.Record {
	out := slices.Clone(records)
	slices.Reverse(out)
	return out
}

// TestModelsOfOneRequest: the names in the spans of one request are names of one model, so requests that only one of the spans' producers
// saw share blocks.
func TestModelsOfOneRequest(t *testing.T) {
	text := chain(t, longText(8000))
	with := func(model string, more ...func(*journal.Inference)) func(*journal.Inference) {
		return func(r *journal.Inference) {
			named(t, model, "")(r)
			tokens(2048, 1)(r)
			r.Prompt = journal.Prompt{Identity: journal.Text, Domain: 9, Chain: text}
			for _, m := range more {
				m(r)
			}
		}
	}
	for why, records := range map[string][]journal.Record{
		"spans one above the other": {call(1, 1, 0, 0, with("alias")), call(1, 2, 1, 1, with("org/model")), call(2, 1, 0, 2, with("alias")), call(3, 1, 0, 3, with("org/model"))},
		"spans one above the other, with a third span between them": {
			call(1, 1, 0, 0, with("alias")), link(1, 5, 1, 0), call(1, 2, 5, 1, with("org/model")), call(2, 1, 0, 2, with("alias")), call(3, 1, 0, 3, with("org/model")),
		},
		"spans with one response id": {
			call(1, 1, 0, 0, with("alias", response("x"))), call(9, 2, 0, 1, with("org/model", response("x"), lasting(10))),
			call(2, 1, 0, 2, with("alias")), call(3, 1, 0, 3, with("org/model")),
		},
	} {
		m, res := compileBytes(t, Options{}, journalOf(records...))
		rows := m.rows(t, production)
		if len(rows) != 3 {
			t.Fatalf("%s: %d rows", why, len(rows))
		}
		for _, row := range rows {
			equal(t, why, rows[0].HashIDs, row.HashIDs)
		}
		equal(t, why+": said in the sidecar", any([][]string{{"alias", "org/model"}}), res.Traces[0].Meta.Transformations[0].Parameters["model_aliases"])
	}
}

// TestModelsOfSeveralRequests: a span around requests of another model, which adds up their tokens, does not give that model another name.
func TestModelsOfSeveralRequests(t *testing.T) {
	text := journal.Prompt{Identity: journal.Text, Domain: 9, Chain: chain(t, longText(8000))}
	with := func(model string, n int64) func(*journal.Inference) {
		return func(r *journal.Inference) {
			named(t, model, "")(r)
			tokens(n, 1)(r)
			r.Prompt = text
		}
	}
	m, _ := compileBytes(t, Options{}, journalOf(
		call(1, 1, 0, 0, with("agent", 4096)), call(1, 2, 1, 1, with("judge", 2048)), call(2, 1, 0, 2, with("agent", 2048)), call(3, 1, 0, 3, with("judge", 2048))))
	rows := m.rows(t, production)
	if len(rows) != 3 || rows[0].HashIDs[0] == rows[1].HashIDs[0] || rows[0].HashIDs[0] != rows[2].HashIDs[0] {
		t.Errorf("%v", lines(rows))
	}
}

// TestIncomplete: a text that cannot be the whole prompt identifies nothing, wherever it came from.
func TestIncomplete(t *testing.T) {
	text := journal.Prompt{Identity: journal.Text, Domain: 9, Chain: chain(t, longText(8000))}
	with := func(r *journal.Inference) { r.Prompt = text }
	remote := func(r *journal.Inference) { r.Remote = true }
	content := func(trace uint64) *journal.Content {
		return &journal.Content{Span: ref(trace, 9), Parent: sid(1), Prompt: text}
	}
	for _, c := range []struct {
		why     string
		records []journal.Record
		lost    loss
	}{
		{"a part is at the server", []journal.Record{call(2, 1, 0, 1, with, tokens(2048, 1), remote)}, lostRemote},
		{"the text came in a log record", []journal.Record{call(2, 1, 0, 1, tokens(2048, 1), remote), content(2)}, lostRemote},
		{"the client says that a part is at the server, and the gateway does not", []journal.Record{call(2, 1, 0, 1, remote), call(2, 2, 1, 2, with, tokens(2048, 1))}, lostRemote},
		{"the client says that a part is at the server, and a span with the same response id does not", []journal.Record{call(2, 1, 0, 1, remote, response("x")), call(3, 2, 0, 2, with, tokens(2048, 1), response("x"), lasting(5))}, lostRemote},
		{"more tokens than bytes", []journal.Record{call(2, 1, 0, 1, tokens(9500, 1)), content(2)}, lostHidden},
	} {
		m, res := compileBytes(t, Options{}, journalOf(append(c.records, call(1, 1, 0, 0, with, tokens(2048, 1)))...))
		equal(t, c.why, map[string]int64{"text": 1, "lengths": 1}, m.meta(t, production).Identity)
		equal(t, c.why, int64(1), dropped(res.Traces[0].Meta.Dropped, c.lost))
	}
}

// TestManyModels: if there are more names than the limit, each is a model of its own, whatever their order.
func TestManyModels(t *testing.T) {
	var m models
	asked, answered := name(t, "asked"), name(t, "answered")
	m.said(asked, answered)
	for i := range maxModels {
		m.said(name(t, fmt.Sprint("m", i)), journal.Name{})
	}
	m.said(asked, answered)
	m.settle()
	equal(t, "model", asked, m.one(&journal.Inference{Model: asked}))
	equal(t, "aliases", 0, len(m.aliases()))
}

// picture is a prompt of text, an image and text.
type picture struct {
	before, image, after string
	tokens               int64 // of the image
}

// prompt encodes a picture as annotate does, with four bytes of text for each token.
func (p picture) prompt(t testing.TB) func(*journal.Inference) {
	t.Helper()
	text := "user\n" + p.before
	end := int64(0)
	if p.image != "" {
		text += fmt.Sprintf(`{"media":"%064s"}`, p.image)
		text += strings.Repeat("\x00", (blockhash.CellSize-len(text)%blockhash.CellSize)%blockhash.CellSize)
		end = int64(len(text))
	}
	text += p.after + "\n"
	h := newHasher(t, blockhash.TextDomain)
	_, _ = h.WriteString(text)
	words := "user\n" + p.before + p.after + "\n"
	return func(r *journal.Inference) {
		r.Prompt = journal.Prompt{Identity: journal.Text, Domain: 9, Chain: h.Chain(), MediaEnd: end}
		r.InputTokens, r.OutputTokens = opt(int64(len(words))/4+p.tokens), opt[int64](1)
	}
}

// TestPictures: how many blocks of 64 tokens the second of two prompts shares with the first.
func TestPictures(t *testing.T) {
	text := longText(40_000)
	a, b, c := text[:8000], text[10_000:14_000], text[20_000:24_000]
	for _, p := range []struct {
		why           string
		first, second picture
		want          int64 // tokens in common
	}{
		{"another image with another number of tokens: the text before it", picture{a, "1", b, 1500}, picture{a, "2", b, 85}, 2000},
		{"a large image does not stretch the text before it", picture{a[:400], "1", b, 15_000}, picture{a[:400], "2", b, 14_000}, 100},
		{"the same image: text and image", picture{a, "1", b, 1500}, picture{a, "1", c, 1500}, 3500},
		{"the same image, with which one prompt ends", picture{a, "1", "", 1500}, picture{a, "1", c, 1500}, 3500},
		{"the same image and text, which one prompt continues", picture{a, "1", b, 700}, picture{a, "1", b + c, 700}, 3700},
		{"an image where the other one has text", picture{a, "1", b, 1500}, picture{a + c, "", "", 0}, 2000},
		{"text only", picture{a, "", "", 0}, picture{a + b, "", "", 0}, 2000},
	} {
		for _, turned := range []bool{false, true} {
			if turned {
				p.first, p.second = p.second, p.first
			}
			m, _ := compileBytes(t, Options{BlockSize: 64}, journalOf(call(1, 1, 0, 0, p.first.prompt(t)), call(2, 1, 0, 1, p.second.prompt(t))))
			rows := m.rows(t, production)
			shared := int64(0)
			for shared < int64(len(rows[0].HashIDs)) && rows[0].HashIDs[shared] == rows[1].HashIDs[shared] {
				shared++
			}
			// Without a prompt of only text, the assumed rate is a token for four bytes, which is true here.
			if shared > (p.want+3)/64 || shared < p.want/64-1 {
				t.Errorf("%s, turned %v: %d blocks, %d tokens in common", p.why, turned, shared, p.want)
			}
		}
	}
}

// TestShapesArePure deals records of all these shapes to journals at random: the traces are the same.
func TestShapesArePure(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	text := longText(20_000)
	names := []string{"m", "m-2024-08-06", "org/m", "auto", "other", ""}
	records := traffic(t, 100)
	for i := range uint64(300) {
		ms, trace := rng.Int64N(500), 10_000+i
		var change []func(*journal.Inference)
		change = append(change, named(t, names[rng.IntN(6)], names[rng.IntN(6)]), clock(rng.Uint64N(4)), producerOf(rng.Uint64N(4)), cached(rng.Int64N(500)))
		if rng.IntN(20) == 0 {
			change = append(change, exclusive)
		}
		if rng.IntN(2) == 0 {
			from := rng.IntN(3) * 3000
			change = append(change, picture{text[:from], fmt.Sprint(rng.IntN(3) * 3), text[from : from+rng.IntN(3)*1500], 500}.prompt(t))
		}
		records = append(records, call(trace, 1, 0, ms, change...))
		switch rng.IntN(4) {
		case 0:
			records = append(records, call(trace+1e6, 1, 0, ms+rng.Int64N(200), joined(trace, 1), named(t, names[rng.IntN(6)], "")))
		case 1:
			records = append(records, tool(trace, 2, 1), call(trace, 3, 2, ms+1, change...))
		case 2:
			records = append(records, call(trace, 2, 1, ms-rng.Int64N(50), clock(9), named(t, names[rng.IntN(6)], "")))
		}
	}
	want, _ := compileBytes(t, Options{BlockSize: 64}, journalOf(records...))
	if len(want.rows(t, production)) < 300 {
		t.Fatalf("%d rows", len(want.rows(t, production)))
	}
	for round := range 6 {
		dealt := make([][]journal.Record, 3)
		for _, i := range rng.Perm(len(records)) {
			j := rng.IntN(len(dealt))
			dealt[j] = append(dealt[j], records[i])
		}
		got, _ := compileBytes(t, Options{BlockSize: 64, Memory: []int{8, DefaultMemory}[round%2]}, journalOf(dealt[0]...), journalOf(dealt[1]...), journalOf(dealt[2]...))
		for name, b := range want {
			if !bytes.Equal(b, got[name]) {
				t.Errorf("round %d: %s differs", round, name)
			}
		}
	}
}
