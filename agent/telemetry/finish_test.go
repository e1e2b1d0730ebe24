// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// target is the configuration of these tests.
var target = Config{
	ExplicitHistograms: true, // whose buckets can be worked out by hand
	RunID:              "run-1", Version: "v1", Provider: "vllm", Operation: "chat", Model: "m", ServerAddress: "127.0.0.1", ServerPort: 8000,
	Speedup: 30, HashDomain: "0badcafe", BlockSize: 512,
}

func TestRequestSpan(t *testing.T) {
	cleanEnv(t)
	synctest.Test(t, func(t *testing.T) {
		cfg, e := target, &fakeExporter{}
		cfg.SpanExporter = e
		p, clk := start(t, cfg)
		r := served(3)
		sp := finish(p, nil, r)
		shutdown(t, p)

		spans := e.stubs()["chat m"]
		if len(spans) != 1 {
			t.Fatalf("%d request spans", len(spans))
		}
		s := spans[0]
		if s.SpanKind != trace.SpanKindClient || s.Parent.IsValid() || s.Status.Code != codes.Unset || len(s.Links) != 0 {
			t.Errorf("kind %v, parent %v, status %v, links %v", s.SpanKind, s.Parent, s.Status, s.Links)
		}
		if !s.StartTime.Equal(clk.Wall(100*ms)) || !s.EndTime.Equal(clk.Wall(170*ms)) {
			t.Errorf("from %v to %v, want intended instant to last token", s.StartTime.Sub(clk.Start()), s.EndTime.Sub(clk.Start()))
		}
		want := map[string]any{
			"gen_ai.operation.name": "chat", "gen_ai.provider.name": "vllm", "gen_ai.request.model": "m",
			"server.address": "127.0.0.1", "server.port": int64(8000),
			"gen_ai.request.stream": true, "gen_ai.request.max_tokens": int64(3),
			"gen_ai.response.id": "cmpl-1", "gen_ai.response.model": "m-2", "gen_ai.response.finish_reasons": []string{"length"},
			"gen_ai.response.time_to_first_chunk": 0.045, // 150 − 105 ms: from the wire
			"gen_ai.usage.input_tokens":           int64(1302), "gen_ai.usage.output_tokens": int64(3),
			"gen_ai.usage.cache_read.input_tokens": int64(512),
			"http.response.status_code":            int64(200),
			"mooncake.row":                         int64(7), "mooncake.timestamp": 27482.5,
			"mooncake.input_length": int64(1300), "mooncake.output_length": int64(3),
			"mooncake.hash_ids": []int64{46, 47, -1}, "mooncake.block_size": int64(512), "mooncake.hash.domain": "0badcafe",
			"mooncake.identity":        "trace",
			"mooncake.schedule.offset": 0.1, "mooncake.schedule.spread": 0.02, "mooncake.schedule.speedup": 30.0,
			"mooncake.schedule.lateness": 0.001, "mooncake.schedule.lateness_class": "on_time", "mooncake.schedule.cap_wait": 0.002,
			"mooncake.cache.predicted_tokens": int64(1024),
			"mooncake.outcome":                "served", "mooncake.chunks.coalesced": int64(2),
		}
		if diff := cmp.Diff(want, attributeMap(s.Attributes)); diff != "" {
			t.Errorf("attributes (-want +got):\n%s", diff)
		}
		resource := attributeMap(s.Resource.Attributes())
		for key, want := range map[string]any{"service.name": "moonloop", "service.version": "v1", "mooncake.run.id": "run-1"} {
			if resource[key] != want {
				t.Errorf("resource: %s = %v, want %v", key, resource[key], want)
			}
		}
		for _, key := range []string{"service.instance.id", "host.name", "telemetry.sdk.name"} {
			if resource[key] == nil {
				t.Errorf("resource has no %s", key)
			}
		}
		for key := range resource {
			if key == "process.command_args" || key == "process.command_line" || key == "process.owner" {
				t.Errorf("resource contains %s, which may contain secrets", key)
			}
		}
		ref := sp.Ref()
		traceID, spanID := fmt.Sprintf("%x", ref.TraceID), fmt.Sprintf("%x", ref.SpanID)
		if got, want := sp.Traceparent(), "00-"+traceID+"-"+spanID+"-01"; got != want {
			t.Errorf("traceparent %q, want %q", got, want)
		}
		if ref.TraceID != s.SpanContext.TraceID() || ref.SpanID != s.SpanContext.SpanID() {
			t.Errorf("ref %x %x", ref.TraceID, ref.SpanID)
		}
	})
}

// A span has what its row says about sharing and replies, every id as the pattern of its bits, and how replies were carried.
func TestSharingOnSpans(t *testing.T) {
	cleanEnv(t)
	synctest.Test(t, func(t *testing.T) {
		cfg, e := target, &fakeExporter{}
		cfg.SpanExporter, cfg.FineBlockSize = e, 16
		p, _ := start(t, cfg)
		r := served(1)
		row := *r.Row
		row.HashRanges = []mooncake.HashRange{{First: 0, Count: 44}, {First: 1<<64 - 2, Count: 2}}
		row.Replies = []mooncake.Reply{{Back: 7, At: 1034, Tokens: 212}, {Back: 1, At: 1250, Tokens: 9}}
		r.Row, r.Replies, r.Carried, r.Invented = &row, []string{"", "late"}, 212, 9
		finish(p, nil, r)
		skipped := &measure.Record{Row: &row, Index: 8, Outcome: measure.Skipped, Reason: measure.SkipInterrupted, Predicted: send.Unknown}
		finish(p, nil, skipped)
		shutdown(t, p)
		for i, s := range e.stubs()["chat m"] {
			want := map[string]any{
				"mooncake.hash_ranges": []int64{0, 44, -2, 2}, "mooncake.fine_block_size": int64(16),
				"mooncake.replies":                []int64{7, 1034, 212, 1, 1250, 9},
				"mooncake.replies.carried_tokens": int64(212), "mooncake.replies.invented_tokens": int64(9),
			}
			if i == 1 { // a row that was not sent had no replies in its prompt
				want["mooncake.replies.carried_tokens"], want["mooncake.replies.invented_tokens"] = nil, nil
			}
			got := attributeMap(s.Attributes)
			for key, v := range want {
				if diff := cmp.Diff(v, got[key]); diff != "" {
					t.Errorf("span %d: %s (-want +got):\n%s", i, key, diff)
				}
			}
		}
		if n := len(e.stubs()["chat m"]); n != 2 {
			t.Errorf("%d spans", n)
		}
	})
}

// A span has what its row waited for, for how long, and how certain that is. The first row of a graph has an empty list, a row without a
// graph has none, and a row with a predecessor that is not part of this run lacks the evidence of its edges.
func TestGraphOnSpans(t *testing.T) {
	cleanEnv(t)
	synctest.Test(t, func(t *testing.T) {
		cfg, e := target, &fakeExporter{}
		cfg.SpanExporter = e
		p, _ := start(t, cfg)
		var want []map[string]any
		for _, c := range []struct {
			after []int64
			want  map[string]any
		}{
			{nil, map[string]any{}},
			{[]int64{}, map[string]any{"mooncake.wait_for": []int64{}, "mooncake.delay": 7.5, "mooncake.tool_wait": 350.}},
			{[]int64{3, 1}, map[string]any{
				"mooncake.wait_for": []int64{3, 1}, "mooncake.wait_evidence": []string{"tool_call", "time"}, "mooncake.delay": 7.5, "mooncake.tool_wait": 350.,
			}},
			{[]int64{3}, map[string]any{"mooncake.wait_for": []int64{3}, "mooncake.delay": 7.5, "mooncake.tool_wait": 350.}},
		} {
			r := served(1)
			row := *r.Row
			row.WaitFor, row.Evidence = []string{"b", "a"}, []mooncake.Evidence{mooncake.EvidenceToolCall, mooncake.EvidenceTime}
			row.Delay, row.ToolWait = mooncake.Some(7.5), mooncake.Some(350.)
			r.Row, r.After = &row, c.after
			finish(p, nil, r)
			want = append(want, c.want)
		}
		shutdown(t, p)
		for i, s := range e.stubs()["chat m"] {
			got := map[string]any{}
			for key, v := range attributeMap(s.Attributes) {
				switch key {
				case "mooncake.wait_for", "mooncake.wait_evidence", "mooncake.delay", "mooncake.tool_wait":
					got[key] = v
				}
			}
			if diff := cmp.Diff(want[i], got); diff != "" {
				t.Errorf("span %d (-want +got):\n%s", i, diff)
			}
		}
		if n := len(e.stubs()["chat m"]); n != len(want) {
			t.Errorf("%d spans", n)
		}
	})
}

// A span has the class of its row, and the priority that was sent; the metrics distinguish the classes, up to a bound.
func TestClassesInTelemetry(t *testing.T) {
	cleanEnv(t)
	cfg, e, reader := target, &fakeExporter{}, sdkmetric.NewManualReader()
	cfg.SpanExporter, cfg.MetricReader = e, reader
	p, _ := start(t, cfg)
	for i, class := range []string{"chat", "batch", "batch", ""} {
		r := served(1)
		row := *r.Row
		row.Class, row.Priority = class, mooncake.Some[int64](5) // the row's own priority, which need not be the one that was sent
		if r.Row = &row; i > 0 {
			r.Priority = mooncake.Some(int64(i))
		}
		finish(p, nil, r)
	}
	counts := map[string]int64{}
	for _, one := range collect(t, reader)["mooncake.requests"].Data.(metricdata.Sum[int64]).DataPoints {
		class, _ := one.Attributes.Value("mooncake.class")
		counts[class.AsString()] += one.Value
	}
	if diff := cmp.Diff(map[string]int64{"chat": 1, "batch": 2, "": 1}, counts); diff != "" {
		t.Errorf("requests by class (-want +got):\n%s", diff)
	}
	shutdown(t, p)
	var got []string
	for _, s := range e.stubs()["chat m"] {
		all := attributeMap(s.Attributes)
		got = append(got, fmt.Sprintf("%v %v", all["mooncake.class"], all["mooncake.priority"]))
	}
	if diff := cmp.Diff([]string{"chat <nil>", "batch 1", "batch 2", "<nil> 3"}, got); diff != "" {
		t.Errorf("class and priority of spans (-want +got):\n%s", diff)
	}
}

// Phases follow one another without a gap, from the span's start to its end, however the request ended.
func TestPhases(t *testing.T) {
	edit := func(r *measure.Record, f func(*measure.Record)) *measure.Record { f(r); return r }
	type row struct {
		name   string
		record *measure.Record
		want   []phase
		end    time.Duration
	}
	for _, c := range []row{
		{
			"served", served(3),
			[]phase{{"queue", 100 * ms, 105 * ms}, {"prefill", 105 * ms, 150 * ms}, {"decode", 150 * ms, 170 * ms}},
			170 * ms,
		},
		{
			"one token has a decode time of 0", served(1),
			[]phase{{"queue", 100 * ms, 105 * ms}, {"prefill", 105 * ms, 150 * ms}, {"decode", 150 * ms, 150 * ms}},
			150 * ms,
		},
		{
			"served without content lasts until the reply's end", served(0),
			[]phase{{"queue", 100 * ms, 105 * ms}, {"prefill", 105 * ms, 151 * ms}},
			151 * ms,
		},
		{
			"a whole reply does not separate prefill and decode", edit(served(1), func(r *measure.Record) { r.Exchange.Whole = true }),
			[]phase{{"queue", 100 * ms, 105 * ms}, {"reply", 105 * ms, 161 * ms}},
			161 * ms,
		},
		{"never on the wire", failed(send.ClassConnect), []phase{{"queue", 100 * ms, 200 * ms}}, 200 * ms},
		{
			"failed before the first token",
			edit(failed(send.ClassFirstTokenTimeout), func(r *measure.Record) { r.Exchange.Wire = 105 * ms }),
			[]phase{{"queue", 100 * ms, 105 * ms}, {"prefill", 105 * ms, 200 * ms}},
			200 * ms,
		},
		{
			"broke off: decode lasts until the failure",
			edit(served(3), func(r *measure.Record) {
				r.Outcome, r.Reason, r.Exchange.End = measure.Failed, string(send.ClassTransport), 300*ms
			}),
			[]phase{{"queue", 100 * ms, 105 * ms}, {"prefill", 105 * ms, 150 * ms}, {"decode", 150 * ms, 300 * ms}},
			300 * ms,
		},
		{
			"body could not be built", edit(failed(""), func(r *measure.Record) { r.Sent, r.Exchange = false, send.Exchange{} }),
			[]phase{{"queue", 100 * ms, 101 * ms}},
			101 * ms,
		},
		{
			"skipped", edit(failed(""), func(r *measure.Record) { r.Outcome, r.Sent = measure.Skipped, false }),
			nil, 100 * ms,
		},
		{
			"answered before all was read: parts are empty, never negative",
			edit(served(3), func(r *measure.Record) { r.Exchange.Wire = 160 * ms }),
			[]phase{{"queue", 100 * ms, 160 * ms}, {"prefill", 160 * ms, 160 * ms}, {"decode", 160 * ms, 170 * ms}},
			170 * ms,
		},
		{
			"sent slightly before its scheduled time", edit(served(3), func(r *measure.Record) { r.Intended = 106 * ms }),
			[]phase{{"queue", 106 * ms, 106 * ms}, {"prefill", 106 * ms, 150 * ms}, {"decode", 150 * ms, 170 * ms}},
			170 * ms,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, end := phases(c.record)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(phase{})); diff != "" {
				t.Errorf("phases (-want +got):\n%s", diff)
			}
			if end != c.end {
				t.Errorf("end %v, want %v", end, c.end)
			}
		})
	}
}

func TestPhaseSpans(t *testing.T) {
	cleanEnv(t)
	synctest.Test(t, func(t *testing.T) {
		cfg, e := target, &fakeExporter{}
		cfg.SpanExporter = e
		p, clk := start(t, cfg)
		finish(p, nil, served(3))
		loss := shutdown(t, p)
		if loss.Ended != 4 || !loss.Complete() {
			t.Errorf("%+v", loss)
		}
		spans := e.stubs()
		request := spans["chat m"][0]
		at := request.StartTime
		for _, name := range []string{"queue", "prefill", "decode"} {
			child := spans[name][0]
			if child.Parent.SpanID() != request.SpanContext.SpanID() || child.SpanContext.TraceID() != request.SpanContext.TraceID() {
				t.Errorf("%s is not a child of its request", name)
			}
			if !child.StartTime.Equal(at) {
				t.Errorf("%s starts at %v, the one before ends at %v", name, child.StartTime.Sub(clk.Start()), at.Sub(clk.Start()))
			}
			if len(child.Attributes) != 0 { // gen_ai.* would make it an inference span of its own in Jaeger
				t.Errorf("%s has attributes: %v", name, child.Attributes)
			}
			at = child.EndTime
		}
		if !at.Equal(request.EndTime) {
			t.Errorf("the phases end at %v, the request at %v", at, request.EndTime)
		}
	})
}

func TestOutcomes(t *testing.T) {
	cleanEnv(t)
	skipped := failed("")
	skipped.Outcome, skipped.Reason, skipped.Message, skipped.Sent = measure.Skipped, measure.SkipDuration, "", false
	cancelled := failed(send.ClassCancelled)
	cancelled.Outcome = measure.Cancelled
	retried := served(2)
	retried.Exchange.Attempts = 3
	resent := served(2)
	resent.Exchange.Replays, resent.Exchange.Resent = 2, 1
	short := served(2)
	short.TooShort, short.TailCut, short.Scheduled = true, true, false
	for _, c := range []struct {
		name   string
		record *measure.Record
		status codes.Code
		with   map[string]any
		absent []string
	}{
		{
			"failed", failed(send.ClassConnectTimeout), codes.Error,
			map[string]any{"mooncake.outcome": "failed", "error.type": "connect_timeout", "gen_ai.request.stream": true},
			[]string{"gen_ai.usage.input_tokens", "http.response.status_code", "gen_ai.response.time_to_first_chunk"},
		},
		{"failed without a class", failed(""), codes.Error, map[string]any{"error.type": "_OTHER"}, nil},
		{"cancelled", cancelled, codes.Error, map[string]any{"mooncake.outcome": "cancelled", "error.type": "cancelled"}, nil},
		{
			"skipped", skipped, codes.Unset,
			map[string]any{"mooncake.outcome": "skipped", "mooncake.outcome.reason": "max_duration", "mooncake.schedule.offset": 0.1},
			[]string{"error.type", "mooncake.schedule.lateness", "mooncake.schedule.lateness_class", "mooncake.schedule.cap_wait"},
		},
		{"retried", retried, codes.Unset, map[string]any{"http.request.resend_count": int64(2)}, []string{"error.type", "mooncake.request.resend_count"}},
		{
			"sent again whole on another connection", resent, codes.Unset,
			map[string]any{"http.request.resend_count": int64(2), "mooncake.request.resend_count": int64(1)},
			[]string{"error.type"},
		},
		{
			"flags; a closed loop has no schedule", short, codes.Unset,
			map[string]any{"mooncake.prompt.too_short": true, "mooncake.prompt.tail_cut": true},
			[]string{"mooncake.schedule.offset", "mooncake.schedule.speedup", "mooncake.schedule.lateness", "mooncake.schedule.lateness_class", "http.request.resend_count"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, e := target, &fakeExporter{}
			cfg.SpanExporter = e
			p, _ := start(t, cfg)
			finish(p, nil, c.record)
			shutdown(t, p)
			s := e.stubs()["chat m"][0]
			if s.Status.Code != c.status || (c.status == codes.Error) != (s.Status.Description != "") {
				t.Errorf("status %v, want %v with a description where it is an error", s.Status, c.status)
			}
			got := attributeMap(s.Attributes)
			for key, want := range c.with {
				if got[key] != want {
					t.Errorf("%s = %v, want %v", key, got[key], want)
				}
			}
			for _, key := range c.absent {
				if v, ok := got[key]; ok {
					t.Errorf("%s = %v, want it absent", key, v)
				}
			}
		})
	}
}

// Rows may lack nearly everything. Absent values stay absent, and an empty list of ids differs from a missing one.
func TestSparseRow(t *testing.T) {
	cleanEnv(t)
	cfg, e := target, &fakeExporter{}
	cfg.SpanExporter = e
	p, _ := start(t, cfg)
	r := served(1)
	r.Row = &mooncake.Row{TextInput: mooncake.Some("hello")}
	finish(p, nil, r)
	r.Row = &mooncake.Row{HashIDs: []uint64{}}
	finish(p, nil, r)
	shutdown(t, p)
	text, empty := attributeMap(e.stubs()["chat m"][0].Attributes), attributeMap(e.stubs()["chat m"][1].Attributes)
	for _, key := range []string{
		"mooncake.hash_ids", "mooncake.identity", "mooncake.block_size", "mooncake.timestamp", "mooncake.input_length",
		"mooncake.hash_ranges", "mooncake.fine_block_size", "mooncake.replies", "mooncake.replies.carried_tokens", "mooncake.replies.invented_tokens",
		"mooncake.output_length", "mooncake.session", "mooncake.turn", "gen_ai.conversation.id",
	} {
		if v, ok := text[key]; ok {
			t.Errorf("%s = %v on a row that has none", key, v)
		}
	}
	for _, v := range text {
		if v == "hello" {
			t.Error("the prompt's text is on the span")
		}
	}
	if diff := cmp.Diff([]int64{}, empty["mooncake.hash_ids"]); diff != "" {
		t.Errorf("an empty list of ids (-want +got):\n%s", diff)
	}
}

func TestSession(t *testing.T) {
	cleanEnv(t)
	cfg, e := target, &fakeExporter{}
	cfg.SpanExporter = e
	p, clk := start(t, cfg)
	ses := p.StartSession(Opening{ID: "s-1", Row: 7, At: 100 * ms})
	first, second := served(2), served(7)
	first.Row.SessionID, second.Row.SessionID, second.Turn = "s-1", "s-1", 1
	origin := mooncake.SpanRef{TraceID: [16]byte{1, 2, 3}, SpanID: [8]byte{4, 5}}
	second.Row.OTel = origin
	finish(p, ses, first)
	finish(p, ses, second)
	finish(p, nil, served(2))
	open, late := p.StartSession(Opening{ID: "s-2"}), served(2)
	late.Row.SessionID = "s-2"
	loss := shutdown(t, p)
	if loss.Ended != 13 || loss.Unended != 1 || loss.Complete() {
		t.Errorf("3 requests of 4 spans and a session ended, one session is open: %+v", loss)
	}
	finish(p, open, late)
	if l := p.Loss(); l.Unended != 0 || l.LostSpans() != 5 {
		t.Errorf("a session whose first request ends after shutdown is lost, and counted: %+v", l)
	}

	spans := e.stubs()
	const name = "session s-1 from row 7, m, run run-1"
	if len(spans[name]) != 1 {
		t.Fatalf("no root is called %q: %v", name, slices.Collect(maps.Keys(spans)))
	}
	root := spans[name][0]
	if root.SpanKind != trace.SpanKindInternal || root.Parent.IsValid() || !root.EndTime.Equal(clk.Wall(160*ms)) {
		t.Errorf("session span, which its first request ends: kind %v, parent %v, end %v", root.SpanKind, root.Parent, root.EndTime.Sub(clk.Start()))
	}
	if diff := cmp.Diff(map[string]any{
		"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "session", "gen_ai.provider.name": "vllm", "gen_ai.request.model": "m",
		"gen_ai.conversation.id": "s-1", "mooncake.session": "s-1", "mooncake.session.first_row": int64(7),
	}, attributeMap(root.Attributes)); diff != "" {
		t.Errorf("session span (-want +got):\n%s", diff)
	}
	requests := spans["chat m"]
	for i, s := range requests[:2] {
		a := attributeMap(s.Attributes)
		if s.Parent.SpanID() != root.SpanContext.SpanID() || s.SpanContext.TraceID() != root.SpanContext.TraceID() {
			t.Errorf("turn %d is not in its session's trace", i)
		}
		if a["mooncake.session"] != "s-1" || a["gen_ai.conversation.id"] != "s-1" || a["mooncake.turn"] != int64(i) {
			t.Errorf("turn %d: %v", i, a)
		}
	}
	if requests[2].SpanContext.TraceID() == root.SpanContext.TraceID() || requests[2].Parent.IsValid() {
		t.Error("a row without a session is in the session's trace")
	}
	if len(requests[0].Links) != 0 || len(requests[1].Links) != 1 {
		t.Fatalf("links: %v and %v", requests[0].Links, requests[1].Links)
	}
	if sc := requests[1].Links[0].SpanContext; sc.TraceID() != origin.TraceID || sc.SpanID() != origin.SpanID {
		t.Errorf("the link goes to %v", sc)
	}
	for i, want := range []any{nil, "01020300000000000000000000000000"} {
		if got := attributeMap(requests[i].Attributes)["mooncake.link.trace_id"]; got != want {
			t.Errorf("turn %d can be found by the production trace %v, want %v", i, got, want)
		}
	}
}

// The name of a session's root fits into a line of a list, however long the parts of the name are.
func TestSessionName(t *testing.T) {
	long := strings.Repeat("é", 100)
	for _, c := range []struct {
		session   *Session
		run, want string
	}{
		{&Session{Opening: Opening{ID: "a", Model: "m", Row: 3}}, "r", "session a from row 3, m, run r"},
		{&Session{Opening: Opening{ID: "a"}}, "", "session a from row 0"},
		{&Session{Opening: Opening{ID: strings.Repeat("x", 48)}}, "", "session " + strings.Repeat("x", 48) + " from row 0"},
		{&Session{Opening: Opening{ID: long, Model: long}}, long, "session " + long[:44] + "… from row 0, " + long[:44] + "…, run " + long[:44] + "…"},
	} {
		if got := c.session.name(c.run); got != c.want || !utf8.ValidString(got) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A store that cannot compare numbers finds late requests by their class.
func TestLatenessClass(t *testing.T) {
	cleanEnv(t)
	for late, want := range map[time.Duration]string{
		-ms: "on_time", 0: "on_time", 10 * ms: "on_time", 10*ms + 1: "late", 250 * ms: "late", 250*ms + 1: "very_late",
	} {
		cfg, e := target, &fakeExporter{}
		cfg.SpanExporter = e
		p, _ := start(t, cfg)
		r := served(1)
		r.Scheduled, r.Dispatched = true, r.Intended+late
		finish(p, nil, r)
		shutdown(t, p)
		if got := attributeMap(e.stubs()["chat m"][0].Attributes)["mooncake.schedule.lateness_class"]; got != want {
			t.Errorf("%v late is %v, want %s", late, got, want)
		}
	}
}

func TestTokenEvents(t *testing.T) {
	gapsNS := []int64{int64(50 * ms), int64(10 * ms), int64(10 * ms), int64(10 * ms)} // the first from the span's start
	for _, c := range []struct {
		name       string
		mode       Mode
		limit      string
		unknown    bool // the server does not count tokens by chunk
		events     int
		dropped    int
		array      []int64
		arrayCount []int64
	}{
		{name: "default", events: 4},
		{name: "all", mode: EventsAll, events: 4},
		{name: "all without counts", mode: EventsAll, unknown: true, events: 4},
		{name: "all within the limit", mode: EventsAll, limit: "4", events: 4},
		{name: "all beyond the limit", mode: EventsAll, limit: "3", events: 3, dropped: 1},
		{name: "limit 0", mode: EventsAll, limit: "0", events: 0, dropped: 4},
		{name: "array", mode: EventsArray, array: gapsNS, arrayCount: []int64{1, 2, 3, 1}},
		{name: "array without counts", mode: EventsArray, unknown: true, array: gapsNS},
		{name: "the limit does not apply to the array", mode: EventsArray, limit: "1", array: gapsNS, arrayCount: []int64{1, 2, 3, 1}},
		{name: "first", mode: EventsFirst, events: 1},
		{name: "none", mode: EventsNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			cleanEnv(t, "OTEL_SPAN_EVENT_COUNT_LIMIT="+c.limit)
			cfg, e := target, &fakeExporter{}
			cfg.SpanExporter, cfg.TokenEvents = e, c.mode
			p, clk := start(t, cfg)
			r := served(4)
			if c.unknown {
				r.Exchange.Tokens = nil
			}
			want := append([]int64(nil), r.Exchange.At...)
			finish(p, nil, r)
			clear(r.Exchange.At) // the arrays go back to the client: the span must have its own
			clear(r.Exchange.Tokens)
			loss := shutdown(t, p)
			if loss.EventsDropped != int64(c.dropped) || loss.Complete() != (c.dropped == 0) {
				t.Errorf("loss %+v, want %d events dropped", loss, c.dropped)
			}

			s := e.stubs()["chat m"][0]
			if len(s.Events) != c.events || s.DroppedEvents != c.dropped {
				t.Fatalf("%d events, %d dropped; want %d, %d", len(s.Events), s.DroppedEvents, c.events, c.dropped)
			}
			for i, event := range s.Events {
				if event.Name != "mooncake.token" || !event.Time.Equal(clk.Wall(time.Duration(want[i]))) {
					t.Errorf("event %d: %s at %v, want %v", i, event.Name, event.Time.Sub(clk.Start()), time.Duration(want[i]))
				}
				attrs := map[string]any{"mooncake.token.index": int64(i)}
				if !c.unknown {
					attrs["mooncake.token.count"] = int64(i%3 + 1)
				}
				if i > 0 {
					attrs["mooncake.token.gap"] = 0.01
				}
				if diff := cmp.Diff(attrs, attributeMap(event.Attributes)); diff != "" {
					t.Errorf("event %d (-want +got):\n%s", i, diff)
				}
			}
			a := attributeMap(s.Attributes)
			for key, want := range map[string][]int64{"mooncake.token.gaps": c.array, "mooncake.token.counts": c.arrayCount} {
				got, _ := a[key].([]int64)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", key, diff)
				}
			}
			if got, _ := a["mooncake.token.dropped"].(int64); got != int64(c.dropped) {
				t.Errorf("mooncake.token.dropped = %d, want %d", got, c.dropped)
			}
		})
	}
}

// A reply that was not streamed has one chunk, whose arrival says nothing about tokens.
func TestWholeReplyHasNoEvents(t *testing.T) {
	cleanEnv(t)
	for _, mode := range []Mode{EventsAll, EventsArray, EventsFirst} {
		cfg, e := target, &fakeExporter{}
		cfg.SpanExporter, cfg.TokenEvents = e, mode
		p, _ := start(t, cfg)
		r := served(1)
		r.Exchange.Whole, r.Stream = true, false
		finish(p, nil, r)
		shutdown(t, p)
		s := e.stubs()["chat m"][0]
		a := attributeMap(s.Attributes)
		if len(s.Events) != 0 || a["mooncake.token.gaps"] != nil || a["gen_ai.request.stream"] != nil || a["gen_ai.response.time_to_first_chunk"] != nil {
			t.Errorf("mode %s: %d events, %v", mode, len(s.Events), a)
		}
	}
}

func TestSampler(t *testing.T) {
	cleanEnv(t, "OTEL_TRACES_SAMPLER=always_off")
	cfg, e := target, &fakeExporter{}
	cfg.SpanExporter = e
	p, _ := start(t, cfg)
	ses := p.StartSession(Opening{ID: "s"})
	sp := finish(p, ses, served(5))
	loss := shutdown(t, p)
	if len(e.spans) != 0 || loss.Ended != 0 || loss.SampledOut != 2 || loss.Complete() || loss.Unended != 0 {
		t.Errorf("%d spans arrived, %+v; want none, and 2 counted as sampled out", len(e.spans), loss)
	}
	if tp := sp.Traceparent(); len(tp) != 55 || tp[53:] != "00" {
		t.Errorf("traceparent %q, want it to say that the span is not sampled", tp)
	}
}

func TestAttributeLimit(t *testing.T) {
	cleanEnv(t, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=10")
	cfg, e := target, &fakeExporter{}
	cfg.SpanExporter = e
	p, _ := start(t, cfg)
	finish(p, nil, served(1))
	loss := shutdown(t, p)
	s := e.stubs()["chat m"][0]
	if len(s.Attributes) != 10 || s.DroppedAttributes == 0 || loss.AttributesDropped != int64(s.DroppedAttributes) || loss.Complete() {
		t.Errorf("%d attributes, %d dropped, %+v", len(s.Attributes), s.DroppedAttributes, loss)
	}
}
