// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// sampling loads settings, with a list of the common beginning of all conversations in these tests.
func sampling(t *testing.T, rate float64, by mooncake.SampleOrder) *Sampling {
	t.Helper()
	name := filepath.Join(t.TempDir(), "trunk.json")
	list := mooncake.TrunkList{Schema: 1, Share: 0.01, Seed: 7, Domains: []mooncake.DomainTrunk{
		{Domain: "00000009", Values: []string{"0000000000000001", "0000000000000002"}}, {Domain: "0000000a", Values: []string{"0000000000000003"}},
	}}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := list.Write(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	c := SamplingConfig{Rate: rate, TrunkList: name, By: by}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	s, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// batchOf builds spans.
type batchOf struct {
	ptrace.Traces
	spans ptrace.SpanSlice
}

func newBatch() *batchOf {
	td := ptrace.NewTraces()
	return &batchOf{Traces: td, spans: td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()}
}

func eight(n uint64) (b [8]byte) {
	binary.BigEndian.PutUint64(b[:], n)
	return b
}

// span adds a span with this number to a trace, below the span with the number parent (0: none).
func (b *batchOf) span(trace, number, parent uint64, attributes map[string]any) {
	s := b.spans.AppendEmpty()
	id := eight(trace)
	s.SetTraceID(pcommon.TraceID(append(make([]byte, 8), id[:]...)))
	s.SetSpanID(eight(number))
	if parent != 0 {
		s.SetParentSpanID(eight(parent))
	}
	s.SetStartTimestamp(pcommon.Timestamp(start))
	s.SetEndTimestamp(pcommon.Timestamp(end))
	for key, v := range attributes {
		if key == content {
			s.SetName(semconv.SpanContent)
			continue
		}
		switch v := v.(type) {
		case []uint64:
			list := s.Attributes().PutEmptySlice(key)
			for _, n := range v {
				list.AppendEmpty().SetInt(int64(n))
			}
		case []byte:
			s.Attributes().PutEmptyBytes(key).FromRaw(v)
		default:
			if err := s.Attributes().PutEmpty(key).FromRaw(v); err != nil {
				panic(err)
			}
		}
	}
}

// content marks the attributes as those of a prompt from a log record.
const content = "content"

// text returns the attributes of a prompt whose text consists of cells with these values.
func text(cells ...uint64) map[string]any {
	c := blockhash.Chain{Cells: cells, Tail: cells[len(cells)-1], Bytes: int64(len(cells)) * blockhash.CellSize}
	b, _ := c.AppendBinary(nil)
	return map[string]any{semconv.Identity: semconv.IdentityText, semconv.Cells: b, semconv.HashDomain: "00000009"}
}

// with returns a copy of the attributes with one more.
func with(attributes map[string]any, key string, v any) map[string]any {
	out := maps.Clone(attributes)
	out[key] = v
	return out
}

// kept returns the spans that are kept, by their numbers.
func kept(t *testing.T, s *Sampling, td ptrace.Traces) (numbers map[uint64]bool, counts Counts) {
	t.Helper()
	records, counts := decodeAll(t, New(Config{Sampling: s}), td)
	numbers = map[uint64]bool{}
	for _, r := range records {
		switch r := r.(type) {
		case *journal.Inference:
			numbers[binary.BigEndian.Uint64(r.Span.SpanID[:])] = true
			if r.Run.IsZero() && r.Sampled != s.made {
				t.Errorf("the record of a request names the sample %v, want %v", r.Sampled, s.made)
			}
		case *journal.Content:
			numbers[binary.BigEndian.Uint64(r.Span.SpanID[:])] = true
		case *journal.Link:
			numbers[binary.BigEndian.Uint64(r.Span.SpanID[:])] = true
		}
	}
	return numbers, counts
}

// TestSamplingTogether: the spans of one request, or of one conversation, are all kept or all left out.
func TestSamplingTogether(t *testing.T) {
	const n = 400
	none := map[string]any{semconv.Identity: semconv.IdentityNone}
	for _, c := range []struct {
		why string
		by  mooncake.SampleOrder
		// build adds the spans of request or conversation i, with the numbers from, from+1 and so on, in one OTel trace or in several.
		build func(b *batchOf, i, from uint64)
		spans uint64
	}{
		{"a client, a span in between, and an engine whose prompt is unknown", "", func(b *batchOf, i, from uint64) {
			b.span(i, from, 0, text(1, 2, 1000+i))
			b.span(i, from+1, from, nil)
			b.span(i, from+2, from+1, none)
		}, 3},
		{"an engine with other hashes", "", func(b *batchOf, i, from uint64) {
			b.span(i, from, 0, text(1, 2, 1000+i))
			b.span(i, from+1, from, map[string]any{semconv.Identity: semconv.IdentityEngine, semconv.HashIDs: []uint64{3, 5000 + i}, semconv.BlockSize: 512, semconv.HashDomain: "0000000a"})
		}, 2},
		{"a prompt in a log record, before its request", "", func(b *batchOf, i, from uint64) {
			b.span(i, from, from+1, with(text(1, 2, 1000+i), content, true))
			b.span(i, from+1, 0, none)
		}, 2},
		{"turns of a conversation that names no session", "", func(b *batchOf, i, from uint64) {
			b.span(10*i, from, 0, text(1, 2, 1000+i))
			b.span(10*i+1, from+1, 0, text(1, 2, 1000+i, 2000+i))
			b.span(10*i+2, from+2, 0, text(1, 2, 1000+i, 2000+i, 3000+i))
		}, 3},
		{"turns of a session with unrelated prompts, and its agent's span", "", func(b *batchOf, i, from uint64) {
			session := fmt.Sprintf("%016x", 77+i)
			b.span(10*i, from, 0, with(text(1, 2, 1000+i), semconv.Session, session))
			b.span(10*i+1, from+1, 0, with(text(4000+i), semconv.Session, session))
			b.span(10*i+2, from+2, 0, map[string]any{semconv.Session: session})
		}, 3},
		{"two sessions whose prompts share a prefix, which takes precedence", mooncake.SamplePrefix, func(b *batchOf, i, from uint64) {
			b.span(10*i, from, 0, with(text(1, 2, 1000+i), semconv.Session, fmt.Sprintf("%016x", 77+i)))
			b.span(10*i+1, from+1, 0, with(text(1, 2, 1000+i, 9), semconv.Session, fmt.Sprintf("%016x", 99_000+i)))
		}, 2},
	} {
		b := newBatch()
		for i := range uint64(n) {
			c.build(b, i+1, 10*(i+1))
		}
		numbers, counts := kept(t, sampling(t, 0.3, c.by), b.Traces)
		whole := 0
		for i := range uint64(n) {
			have := uint64(0)
			for k := range c.spans {
				if numbers[10*(i+1)+k] {
					have++
				}
			}
			switch have {
			case 0:
			case c.spans:
				whole++
			default:
				t.Fatalf("%s: %d of %d spans of case %d", c.why, have, c.spans, i)
			}
		}
		if whole < n*3/10-40 || whole > n*3/10+40 { // four standard deviations
			t.Errorf("%s: %d of %d are kept at a rate of 0.3", c.why, whole, n)
		}
		out := counts.SampledOut
		if sum := recordsOf(&counts) + out.Inferences + out.Contents + out.Links; sum != int64(n*c.spans) || counts.Undecided != 0 || counts.Unlisted != 0 {
			t.Errorf("%s: %+v do not add up to %d records", c.why, counts, n*c.spans)
		}
	}
}

// TestSamplingAlike: several Collectors, each with a part of the spans, together keep the same spans as one Collector that gets all of them.
func TestSamplingAlike(t *testing.T) {
	const n = 500
	all, parts := newBatch(), []*batchOf{newBatch(), newBatch(), newBatch(), newBatch(), newBatch(), newBatch(), newBatch()}
	for i := range uint64(n) {
		prompt := text(1, 2, 1000+i/3, 2000+i)
		all.span(i+1, i+1, 0, prompt)
		parts[i*i%7].span(i+1, i+1, 0, prompt)
	}
	want, _ := kept(t, sampling(t, 0.1, ""), all.Traces)
	got := map[uint64]bool{}
	for _, p := range parts {
		some, _ := kept(t, sampling(t, 0.1, ""), p.Traces)
		for number := range some {
			got[number] = true
		}
	}
	if len(want) == 0 || len(want) == n || len(got) != len(want) {
		t.Fatalf("%d of %d by one Collector, %d by several", len(want), n, len(got))
	}
	for number := range want {
		if !got[number] {
			t.Errorf("span %d is kept by one Collector alone", number)
		}
	}
}

// TestSamplingLeaves: replays are not sampled; requests that cannot be assigned are left out and counted; and a list of another key is
// noticed.
func TestSamplingLeaves(t *testing.T) {
	s := sampling(t, 0.001, "")
	replayed := newBatch()
	replayed.ResourceSpans().At(0).Resource().Attributes().PutStr(semconv.RunID, "nightly")
	for i := range uint64(50) {
		replayed.span(1, i+1, 0, with(text(1, 100+i), semconv.Row, int64(i)))
		replayed.span(1, 1000+i, i+1, nil)
	}
	if numbers, counts := kept(t, s, replayed.Traces); len(numbers) != 100 || counts.SampledOut != (Kinds{}) {
		t.Errorf("of 100 spans of a replay, %d are kept: %+v", len(numbers), counts)
	}
	alone := newBatch()
	alone.span(1, 1, 9, map[string]any{semconv.Identity: semconv.IdentityNone})
	alone.span(2, 2, 9, with(text(1, 100), content, true)) // whose request is in another batch
	if numbers, counts := kept(t, s, alone.Traces); len(numbers) != 0 || counts.Undecided != 2 {
		t.Errorf("%v are kept: %+v", numbers, counts)
	}
	other := newBatch()
	other.span(1, 1, 0, with(text(1, 100), semconv.HashDomain, "000000bb"))
	if _, counts := kept(t, s, other.Traces); counts.Unlisted != 1 {
		t.Errorf("a prompt of a domain that is not on the list: %+v", counts)
	}
	// What another component has sampled is not sampled again.
	twice := newBatch()
	request := journal.Inference{Span: mooncake.SpanRef{TraceID: traceID, SpanID: spanID}, Prompt: journal.Prompt{Identity: journal.None}, Sampled: journal.Sampled{PerMillion: 5}}
	span := twice.spans.AppendEmpty()
	span.SetTraceID(traceID)
	span.SetSpanID(spanID)
	span.Attributes().PutEmptyBytes(semconv.Record).FromRaw(journal.AppendRecord(nil, &request))
	records, _ := decodeAll(t, New(Config{Sampling: s}), twice.Traces)
	if len(records) != 1 || records[0].(*journal.Inference).Sampled.PerMillion != 5 {
		t.Errorf("a record that was sampled before: %v", records)
	}
}

// TestSamplingConfig: invalid settings are refused.
func TestSamplingConfig(t *testing.T) {
	for why, c := range map[string]SamplingConfig{
		"rate is 0:": {}, "rate is 0.0001": {Rate: 0.0001}, "rate is 2": {Rate: 2}, "rate is NaN": {Rate: math.NaN()},
		"want session or prefix": {Rate: 0.1, By: "model"}, "has no effect": {Rate: 1, TrunkList: "x"},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	c := SamplingConfig{Rate: 0.1, TrunkList: filepath.Join(t.TempDir(), "missing")}
	if _, err := c.Load(); err == nil || !strings.Contains(err.Error(), "sampling::trunk_list") {
		t.Errorf("a list that does not exist: %v", err)
	}
	for _, rate := range []float64{0, 1} {
		if s, err := (&SamplingConfig{Rate: rate}).Load(); s != nil || err != nil {
			t.Errorf("rate %g: %v, %v", rate, s, err)
		}
	}
	if s := sampling(t, 0.0123456, ""); s.made.PerMillion != 12346 || s.sampler.Rate != 0.012346 || s.list == nil {
		t.Errorf("%+v", s)
	}
}
