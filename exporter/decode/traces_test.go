// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/semconv"
)

// replay returns n requests as the agent writes them, each with its phases, a prompt with this number of ids, and 4 token events.
func replay(n, ids int) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr(semconv.ServiceName, semconv.DefaultServiceName)
	rs.Resource().Attributes().PutStr(semconv.RunID, "0190-run")
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	for i := range n {
		trace := pcommon.TraceID{15: byte(i), 14: byte(i >> 8), 0: 1}
		s := spans.AppendEmpty()
		s.SetTraceID(trace)
		s.SetSpanID(pcommon.SpanID{7: 1})
		s.SetName("chat m")
		s.SetKind(ptrace.SpanKindClient)
		s.SetStartTimestamp(pcommon.Timestamp(start + int64(i)*1e6))
		s.SetEndTimestamp(pcommon.Timestamp(end + int64(i)*1e6))
		a := s.Attributes()
		a.PutStr(semconv.GenAIOperationName, "chat")
		a.PutStr(semconv.GenAIProviderName, semconv.ProviderOther)
		a.PutStr(semconv.GenAIRequestModel, "m")
		a.PutStr(semconv.ServerAddress, "127.0.0.1")
		a.PutInt(semconv.ServerPort, 8000)
		a.PutInt(semconv.Row, int64(i))
		a.PutDouble(semconv.Timestamp, float64(i)*0.5)
		a.PutInt(semconv.InputLength, int64(ids)*512)
		a.PutInt(semconv.OutputLength, 4)
		list := a.PutEmptySlice(semconv.HashIDs)
		for k := range ids {
			id := uint64(k)
			switch k {
			case 1:
				id = 1 << 63
			case 2:
				id = 1<<64 - 1
			}
			list.AppendEmpty().SetInt(int64(id))
		}
		a.PutInt(semconv.BlockSize, 512)
		a.PutStr(semconv.HashDomain, "12345678")
		a.PutStr(semconv.Identity, semconv.IdentityTrace)
		a.PutStr(semconv.Session, "conversation 7")
		a.PutInt(semconv.Turn, 0)
		a.PutDouble(semconv.ScheduleOffset, float64(i)*0.0005)
		a.PutDouble(semconv.ScheduleSpread, 0.0001)
		a.PutDouble(semconv.ScheduleSpeedup, 1)
		a.PutStr(semconv.Outcome, semconv.OutcomeServed)
		a.PutStr(semconv.GenAIResponseID, "cmpl-"+strings.Repeat("1", 20))
		a.PutInt(semconv.GenAIUsageInputTokens, int64(ids)*512)
		a.PutInt(semconv.GenAIUsageOutputTokens, 4)
		for k := range 4 {
			e := s.Events().AppendEmpty()
			e.SetName(semconv.EventToken)
			e.SetTimestamp(pcommon.Timestamp(start + int64(i)*1e6 + int64(k+1)*1e7))
			e.Attributes().PutInt(semconv.TokenIndex, int64(k))
		}
		for k, phase := range []string{semconv.PhaseQueue, semconv.PhasePrefill, semconv.PhaseDecode} {
			p := spans.AppendEmpty()
			p.SetTraceID(trace)
			p.SetSpanID(pcommon.SpanID{7: byte(k + 2)})
			p.SetParentSpanID(pcommon.SpanID{7: 1})
			p.SetName(phase)
		}
	}
	return td
}

// TestRoundTrip sends an agent's spans through both encodings of OTLP, into a journal and out again.
func TestRoundTrip(t *testing.T) {
	td := replay(3, 4)
	d := New(Config{})
	want, _ := decodeAll(t, d, td)
	first := want[0].(*journal.Inference)
	if diff := cmp.Diff([]uint64{0, 1 << 63, 1<<64 - 1, 3}, first.HashIDs); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
	if first.Run.String() != "0190-run" || first.FirstToken.V != start+1e7 || first.Session == 0 || !first.Row.Set {
		t.Errorf("record: %+v", first)
	}
	for name, code := range map[string]func() (ptrace.Traces, error){
		"protobuf": func() (ptrace.Traces, error) {
			b, err := new(ptrace.ProtoMarshaler).MarshalTraces(td)
			if err != nil {
				return td, err
			}
			return new(ptrace.ProtoUnmarshaler).UnmarshalTraces(b)
		},
		"JSON": func() (ptrace.Traces, error) {
			b, err := new(ptrace.JSONMarshaler).MarshalTraces(td)
			if err != nil {
				return td, err
			}
			return new(ptrace.JSONUnmarshaler).UnmarshalTraces(b)
		},
	} {
		back, err := code()
		if err != nil {
			t.Fatal(err)
		}
		got, counts := decodeAll(t, d, back)
		if diff := cmp.Diff(want, got, compareNames); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if counts.Inferences != 3 || counts.Links != 9 || counts.Invalid != nil {
			t.Errorf("%s: counts %+v", name, counts)
		}
		file := t.TempDir() + "/journal"
		w, err := journal.OpenWriter(file, journal.WriterOptions{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		var batch journal.Batch
		if _, err := d.Traces(back, batch.Add); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.AppendBatch(&batch), w.Close()); err != nil {
			t.Fatal(err)
		}
		f, err := capture.FileSource(file).Open()
		if err != nil {
			t.Fatal(err)
		}
		var read []journal.Record
		for r := journal.NewReader(file, f); ; {
			record, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			read = append(read, record)
		}
		if diff := cmp.Diff(want, read, compareNames); diff != "" {
			t.Errorf("%s and journal (-want +got):\n%s", name, diff)
		}
		_ = f.Close()
	}
}

// A span with the maximum number of ids, cells, ends, ranges and replies is a record that a journal accepts.
func TestLargestRecordFits(t *testing.T) {
	td, s := one()
	s.Attributes().PutStr(semconv.Identity, "text")
	list := s.Attributes().PutEmptySlice(semconv.HashIDs)
	list.EnsureCapacity(maxHashIDs)
	for range maxHashIDs {
		list.AppendEmpty().SetInt(-1)
	}
	_, raw := chain(t, strings.Repeat("0123456789abcdef", 9<<20/16))
	if len(raw) != maxCells {
		t.Fatalf("%d bytes of cells, want %d", len(raw), maxCells)
	}
	for i := range raw[:len(raw)-8] {
		raw[i] |= 0x80 // wide
	}
	s.Attributes().PutEmptyBytes(semconv.Cells).FromRaw(raw)
	var ends []byte
	for i := range blockhash.MaxEnds {
		var err error
		if ends, err = (blockhash.End{Bytes: int64(2048*i + 2047), Role: blockhash.RoleUser, Value: 1<<64 - 1}).AppendBinary(ends); err != nil {
			t.Fatal(err)
		}
	}
	s.Attributes().PutEmptyBytes(semconv.CellsEnds).FromRaw(ends)
	for key, numbers := range map[string][]int64{semconv.HashRanges: {1 << 62, maxCount, -1 << 63, maxCount}, semconv.Replies: {maxCount, maxCount, maxCount}} {
		most := map[string]int{semconv.HashRanges: 2 * journal.MaxRanges, semconv.Replies: 3 * journal.MaxReplies}[key]
		list := s.Attributes().PutEmptySlice(key)
		list.EnsureCapacity(most)
		for i := range most {
			list.AppendEmpty().SetInt(numbers[i%len(numbers)])
		}
	}
	s.Attributes().PutInt(semconv.FineBlockSize, 1<<31-1)
	s.Attributes().PutStr(semconv.GenAIRequestModel, strings.Repeat("m", journal.MaxName))
	var b journal.Batch
	counts, err := New(Config{}).Traces(td, b.Add)
	if err != nil || counts.Inferences != 1 || counts.Invalid != nil {
		t.Errorf("counts %+v, error %v", counts, err)
	}
}

func TestVisitError(t *testing.T) {
	stop := errors.New("stop")
	n := 0
	counts, err := New(Config{}).Traces(replay(3, 1), func(journal.Record) error {
		if n++; n == 2 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || n != 2 || recordsOf(&counts) != 2 {
		t.Errorf("error %v after %d records, counted %+v", err, n, counts)
	}
}

func TestConcurrent(t *testing.T) {
	d := New(Config{})
	td := replay(20, 10)
	td.MarkReadOnly() // decoding changes nothing
	want, _ := decodeAll(t, d, td)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				got, _ := decodeAll(t, d, td)
				if diff := cmp.Diff(want, got, compareNames); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
	all.Wait()
}

func TestCountsAdd(t *testing.T) {
	a := Counts{Inferences: 1, Unannotated: 2, Contents: 3, Links: 4, NoTraceID: 5, NoSpanID: 6, Invalid: map[string]int64{"x": 1}}
	var sum Counts
	sum.Add(a)
	sum.Add(a)
	want := Counts{Inferences: 2, Unannotated: 4, Contents: 6, Links: 8, NoTraceID: 10, NoSpanID: 12, Invalid: map[string]int64{"x": 2}}
	if diff := cmp.Diff(want, sum); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if a.Invalid["x"] != 1 {
		t.Error("the sum shares its map with what was added")
	}
}

// FuzzTraces decodes arbitrary bytes that are spans: no panic, and one record for each span with ids, which a journal accepts.
func FuzzTraces(f *testing.F) {
	for _, td := range []ptrace.Traces{replay(1, 3), replay(2, 0)} {
		b, err := new(ptrace.ProtoMarshaler).MarshalTraces(td)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	d := New(Config{})
	f.Fuzz(func(t *testing.T, b []byte) {
		td, err := new(ptrace.ProtoUnmarshaler).UnmarshalTraces(b)
		if err != nil {
			return
		}
		var batch journal.Batch
		counts, err := d.Traces(td, batch.Add)
		if err != nil {
			t.Fatal(err)
		}
		if n := recordsOf(&counts) + counts.NoTraceID + counts.NoSpanID; n != int64(td.SpanCount()) || int64(batch.Len()) != recordsOf(&counts) {
			t.Errorf("%d spans, %d records, counts %+v", td.SpanCount(), batch.Len(), counts)
		}
	})
}

func BenchmarkTraces(b *testing.B) {
	_, raw := chain(b, strings.Repeat("all work and no play ", 500))
	text := replay(100, 0)
	for _, s := range text.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		if _, ok := s.Attributes().Get(semconv.Row); ok {
			s.Attributes().Remove(semconv.Row)
			s.Attributes().PutStr(semconv.Identity, "text")
			s.Attributes().PutEmptyBytes(semconv.Cells).FromRaw(raw)
		}
	}
	raws := replay(100, 0)
	for _, s := range raws.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		s.Attributes().Remove(semconv.Row)
		s.Attributes().Remove(semconv.Identity)
	}
	for name, td := range map[string]ptrace.Traces{"replay of 20 blocks": replay(100, 20), "text of 10 KB": text, "unannotated": raws} {
		b.Run(name, func(b *testing.B) {
			d := New(Config{})
			var batch journal.Batch
			b.ReportAllocs()
			for b.Loop() {
				batch.Reset()
				if _, err := d.Traces(td, batch.Add); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*td.SpanCount())/b.Elapsed().Seconds(), "spans/s")
		})
	}
}
