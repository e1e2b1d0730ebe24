// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

const ms = time.Millisecond

// served returns the record on which the hand-computed figures of this package are based. In ms on the run's clock: intended 1000,
// dispatched and admitted 1001, start 1002, wire 1005, first byte 1050, role chunk 1095, content at 1100, 1110, 1130 and 1160, end 1170.
// Five output tokens in four chunks.
func served() *Record {
	return &Record{
		Row: &mooncake.Row{
			InputLength: mooncake.Some[int64](1000), OutputLength: mooncake.Some[int64](5),
		},
		Outcome: Served, Scheduled: true, Sent: true,
		Intended: 1000 * ms, Dispatched: 1001 * ms, Admitted: 1001 * ms,
		PromptTokens: 1000, OutputTokensAsked: 5, Prompt: AgreeEqual, Output: AgreeEqual, Predicted: 1000,
		Exchange: send.Exchange{
			Start: 1002 * ms, Wire: 1005 * ms, FirstByte: 1050 * ms, Headers: 1051 * ms,
			FirstEvent: 1095 * ms, FirstAnswer: 1110 * ms, End: 1170 * ms,
			At:    stamps(1100, 1110, 1130, 1160),
			Usage: send.Usage{Prompt: 1000, Completion: 5, Cached: 512, Reasoning: send.Unknown},
			Phases: send.Phases{
				Blocked: 1 * ms / 2, DNS: ms / 4, Connect: ms / 2, TLS: ms, Sending: 3 * ms / 4, Waiting: 45 * ms, Receiving: 120 * ms,
			},
			FinishReason: "length", Status: 200, Attempts: 1, KernelStamps: true, BytesSent: 2048, BytesRead: 900,
		},
	}
}

func stamps(at ...int64) []int64 {
	for i := range at {
		at[i] *= int64(ms)
	}
	return at
}

// TestBuildingIsWireLag: the time to build a request after its dispatch, such as one with a large image, is in the wire lag, which the verdict
// judges, and not in the lateness.
func TestBuildingIsWireLag(t *testing.T) {
	const building = 325 * ms
	r := served()
	late := r.Lateness()
	lag, _ := r.WireLag()
	r.Exchange.Start += building
	r.Exchange.Wire += building
	if now, ok := r.WireLag(); !ok || now != lag+building || r.Lateness() != late {
		t.Errorf("wire lag %v, lateness %v; want %v, %v", now, r.Lateness(), lag+building, late)
	}
}

func TestFormulas(t *testing.T) {
	type formula func(*Record) (time.Duration, bool)
	for _, test := range []struct {
		name string
		f    formula
		want time.Duration
	}{
		// 1100 − 1002: AIPerf starts before the HTTP call.
		{"TTFT from start", func(r *Record) (time.Duration, bool) { return r.TTFT(r.Exchange.Start) }, 98 * ms},
		// 1100 − 1005: only what network and engine did.
		{"TTFT from the wire", func(r *Record) (time.Duration, bool) { return r.TTFT(r.Exchange.Wire) }, 95 * ms},
		// 1100 − 1000: the client's own lateness included.
		{"TTFT from intended", func(r *Record) (time.Duration, bool) { return r.TTFT(r.Intended) }, 100 * ms},
		// 1095 − 1002: vLLM counts the role-only chunk.
		{"TTFE", (*Record).TTFE, 93 * ms},
		// 1110 − 1002: the first chunk was reasoning.
		{"TTFO", (*Record).TTFO, 108 * ms},
		// 1110 − 1100.
		{"TTST", (*Record).TTST, 10 * ms},
		// 1160 − 1002: the closing chunks until 1170 do not count.
		{"latency from start", func(r *Record) (time.Duration, bool) { return r.Latency(r.Exchange.Start) }, 158 * ms},
		{"latency from the wire", func(r *Record) (time.Duration, bool) { return r.Latency(r.Exchange.Wire) }, 155 * ms},
		{"latency from intended", func(r *Record) (time.Duration, bool) { return r.Latency(r.Intended) }, 160 * ms},
		// 158 − 98.
		{"decode", (*Record).DecodeDuration, 60 * ms},
		// 60 ÷ (5 − 1): divided by tokens, not chunks.
		{"ITL", (*Record).ITL, 15 * ms},
		// (1160 − 1095) ÷ (5 − 1): from vLLM's first event.
		{"TPOT", (*Record).TPOT, 16*ms + ms/4},
		// 158 ÷ 5: GuideLLM's includes the prefill.
		{"TPOT with first", (*Record).TPOTWithFirst, 31*ms + 600*time.Microsecond},
		{"cap wait", (*Record).CapWait, 0},
		// 1005 − 1001.
		{"wire lag", (*Record).WireLag, 4 * ms},
		// 1005 − 1000.
		{"send gap", (*Record).SendGap, 5 * ms},
	} {
		got, ok := test.f(served())
		if !ok || got != test.want {
			t.Errorf("%s = %v, %v; want %v", test.name, got, ok, test.want)
		}
	}
}

func TestFormulasWithoutTheirInput(t *testing.T) {
	type formula func(*Record) (time.Duration, bool)
	ttft := func(r *Record) (time.Duration, bool) { return r.TTFT(r.Exchange.Start) }
	for _, test := range []struct {
		name   string
		change func(*Record)
		f      formula
	}{
		{"no content, no first token", func(r *Record) { r.Exchange.At = nil }, ttft},
		{"one JSON body has no first token", func(r *Record) { r.Exchange.Whole = true }, ttft},
		{"one JSON body has no first event", func(r *Record) { r.Exchange.Whole = true }, (*Record).TTFE},
		{"one JSON body has no ITL", func(r *Record) { r.Exchange.Whole = true }, (*Record).ITL},
		{"one JSON body without a count has no TPOT with first", func(r *Record) {
			r.Exchange.Whole, r.Exchange.At, r.Exchange.Usage.Completion = true, stamps(1160), send.Unknown
		}, (*Record).TPOTWithFirst},
		{"one JSON body has no TPOT", func(r *Record) { r.Exchange.Whole = true }, (*Record).TPOT},
		{"only reasoning, no answer", func(r *Record) { r.Exchange.FirstAnswer = clock.Never }, (*Record).TTFO},
		{"one chunk, no second", func(r *Record) { r.Exchange.At = stamps(1100) }, (*Record).TTST},
		{"one token has no gap", func(r *Record) { r.Exchange.Usage.Completion = 1 }, (*Record).ITL},
		{"five tokens in one chunk: ITL is unknown, not 0", func(r *Record) { r.Exchange.At = stamps(1100) }, (*Record).ITL},
		{"five tokens in one chunk: TPOT is unknown, not 0", func(r *Record) { r.Exchange.At = stamps(1100) }, (*Record).TPOT},
		{"no token to divide by", func(r *Record) { r.Exchange.Usage.Completion = 0 }, (*Record).TPOTWithFirst},
		{"never written, no wire lag", func(r *Record) { r.Exchange.Wire = clock.Never }, (*Record).WireLag},
		{"sent again after a pause", func(r *Record) { r.Exchange.Attempts = 2 }, (*Record).WireLag},
		{"never written, no send gap", func(r *Record) { r.Exchange.Wire = clock.Never }, (*Record).SendGap},
		{"stopped while it waited for the cap", func(r *Record) { r.Admitted = clock.Never }, (*Record).CapWait},
	} {
		r := served()
		test.change(r)
		if got, ok := test.f(r); ok {
			t.Errorf("%s: got %v", test.name, got)
		}
	}
}

func TestTokenSources(t *testing.T) {
	type tokens struct {
		N         int64
		Estimated bool
	}
	for _, test := range []struct {
		name          string
		change        func(*Record)
		input, output tokens
	}{
		{"the server's count comes first", func(*Record) {}, tokens{1000, false}, tokens{5, false}},
		{
			"without usage: the body's tokens, and the chunks' own counts 1+1+2+3",
			func(r *Record) { r.Exchange.Usage, r.Exchange.Tokens = send.NoUsage, []int32{1, 1, 2, 3} },
			tokens{1000, true},
			tokens{7, true},
		},
		{
			"without any count: the row's length, and a token per chunk",
			func(r *Record) { r.Exchange.Usage, r.PromptTokens, r.Row.InputLength.V = send.NoUsage, 0, 900 },
			tokens{900, true},
			tokens{4, true},
		},
		{"a count of 0 is a count", func(r *Record) { r.Exchange.Usage.Completion = 0 }, tokens{1000, false}, tokens{0, false}},
		{"not a stream, and without a count: one chunk has all tokens", func(r *Record) {
			r.Exchange.Whole, r.Exchange.At, r.Exchange.Usage.Completion = true, stamps(1160), send.Unknown
		}, tokens{1000, false}, tokens{send.Unknown, false}},
		{"without a row nothing is known", func(r *Record) { r.Row, r.PromptTokens, r.Exchange.Usage = nil, 0, send.NoUsage }, tokens{0, true}, tokens{4, true}},
	} {
		r := served()
		test.change(r)
		var got [2]tokens
		got[0].N, got[0].Estimated = r.InputTokens()
		got[1].N, got[1].Estimated = r.OutputTokens()
		if diff := cmp.Diff([2]tokens{test.input, test.output}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// A reply without content ends with its last byte: 1170 − 1002.
func TestLatencyWithoutContent(t *testing.T) {
	r := served()
	r.Exchange.At = nil
	if got, ok := r.Latency(r.Exchange.Start); !ok || got != 168*ms {
		t.Errorf("latency = %v, %v; want 168ms", got, ok)
	}
}

// TestTimePerTokenOfChoices: a reply of two choices has twice the tokens, and each of them comes as fast.
func TestTimePerTokenOfChoices(t *testing.T) {
	one, two := served(), served()
	two.Exchange.Choices = 2
	two.Exchange.Usage.Completion *= 2
	for name, of := range map[string]span{"ITL": (*Record).ITL, "TPOT": (*Record).TPOT, "TPOT with first": (*Record).TPOTWithFirst} {
		want, _ := of(one)
		if got, ok := of(two); !ok || got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	one.Exchange.Usage.Completion, one.Exchange.Choices = send.Unknown, 2 // then the chunks of one choice are counted
	if got, _ := one.ITL(); got != 20*ms {
		t.Errorf("ITL of 3 gaps in 60 ms: %v", got)
	}
}

// TestFacts: the facts about a record that figures, spans, metrics and files share.
func TestFacts(t *testing.T) {
	edit := func(f func(*Record)) *Record { r := served(); f(r); return r }
	for _, test := range []struct {
		name                    string
		r                       *Record
		resent                  bool
		diff, predicted, cached int64
		prompt, pair            bool
	}{
		{"served", served(), false, 0, 1000, 512, true, true},
		{"a second attempt", edit(func(r *Record) { r.Exchange.Attempts = 2 }), true, 0, 1000, 512, true, true},
		{"a second attempt, after one without a connection", edit(func(r *Record) { r.Exchange.Attempts, r.Exchange.Unconnected = 2, 1 }), false, 0, 1000, 512, true, true},
		{"the whole request sent again on another connection", edit(func(r *Record) { r.Exchange.Replays, r.Exchange.Resent = 1, 1 }), true, 0, 1000, 512, true, true},
		{"sent again before the first connection had taken the whole request", edit(func(r *Record) { r.Exchange.Replays = 1 }), false, 0, 1000, 512, true, true},
		{"three tokens too few", edit(func(r *Record) { r.Prompt, r.Exchange.Usage.Prompt = AgreeDifferent, 997 }), false, -3, 1000, 512, true, true},
		// The usage is of the whole conversation, the row's length of its new turn.
		{"a new turn", edit(func(r *Record) { r.Prompt, r.PromptTokens, r.Exchange.Usage.Prompt = AgreeUnknown, 0, 9000 }), false, 0, 1000, 512, false, true},
		{"no prediction", edit(func(r *Record) { r.Predicted = send.Unknown }), false, 0, 0, 0, true, false},
		{"no report", edit(func(r *Record) { r.Exchange.Usage.Cached = send.Unknown }), false, 0, 0, 0, true, false},
		{"never sent: zeros are not counts", &Record{Outcome: Failed}, false, 0, 0, 0, false, false},
	} {
		diff, prompt := test.r.PromptError()
		predicted, cached, pair := test.r.CachePair()
		if test.r.Resent() != test.resent || diff != test.diff || prompt != test.prompt ||
			predicted != test.predicted || cached != test.cached || pair != test.pair {
			t.Errorf("%s: resent %t, prompt %d %t, cache %d %d %t", test.name, test.r.Resent(), diff, prompt, predicted, cached, pair)
		}
	}
}
