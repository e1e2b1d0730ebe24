// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/send"
)

func TestParseSLO(t *testing.T) {
	for _, test := range []struct {
		text string
		want SLO
	}{
		{"", SLO{}},
		{"ttft=500ms,itl=50ms", SLO{TTFT: 500 * ms, ITL: 50 * ms}},
		{"ttft=0.5s, tpot=20ms e2e=1m ttst=1s", SLO{TTFT: 500 * ms, TPOT: 20 * ms, E2E: 60000 * ms, TTST: 1000 * ms}},
		// AIPerf's --goodput, in its display units.
		{"request_latency:250 inter_token_latency:10", SLO{E2E: 250 * ms, ITL: 10 * ms}},
		// vLLM's.
		{"ttft:100.5 e2el:2000", SLO{TTFT: 100*ms + ms/2, E2E: 2000 * ms}},
		{"time_to_first_output_token:300 decode_duration:900", SLO{TTFO: 300 * ms, Decode: 900 * ms}},
		{"TTFT=1s", SLO{TTFT: 1000 * ms}},
	} {
		got, err := ParseSLO(test.text)
		if err != nil || got != test.want {
			t.Errorf("%q: %+v, %v; want %+v", test.text, got, err, test.want)
		}
		if again, err := ParseSLO(got.String()); err != nil || again != got {
			t.Errorf("%q does not read back: %q", test.text, got.String())
		}
	}
}

func TestParseSLOErrors(t *testing.T) {
	for text, want := range map[string]string{
		"ttft":                               `"ttft"`,
		"latency=5ms":                        "ttft, ttst, itl, tpot, e2e, ttfo or decode",
		"output_token_throughput_per_user:1": "output_token_throughput_per_user",
		"ttft=fast":                          `"fast" is not a duration`,
		"ttft=0":                             "not above 0",
		"ttft=-5ms":                          "not above 0",
		"ttft=NaN":                           "not a duration",
		"ttft=1e300":                         "not a duration",
		"itl=5ms,itl=6ms":                    "twice",
		"e2e=1s,request_latency:5":           "twice",
	} {
		if _, err := ParseSLO(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want it to name %q", text, err, want)
		}
	}
}

// The record of formula_test.go: TTFT 98, TTST 10, ITL 15, TPOT 16.25, latency 158 ms.
func TestGood(t *testing.T) {
	same := func(*Record) {}
	for _, test := range []struct {
		name   string
		slo    SLO
		change func(*Record)
		want   bool
	}{
		{"within, bounds included", SLO{98 * ms, 10 * ms, 15 * ms, 16*ms + ms/4, 158 * ms, 108 * ms, 60 * ms}, same, true},
		{"first token too late", SLO{TTFT: 97 * ms}, same, false},
		{"second token too late", SLO{TTST: 9 * ms}, same, false},
		{"tokens too slow", SLO{ITL: 14 * ms}, same, false},
		{"tokens too slow by vLLM's rule alone", SLO{ITL: 15 * ms, TPOT: 16 * ms}, same, false},
		{"too late at the end", SLO{E2E: 157 * ms}, same, false},
		{"the answer begins too late", SLO{TTFO: 107 * ms}, same, false},
		{"reasoning alone misses the beginning of an answer", SLO{TTFO: 1000 * ms}, func(r *Record) { r.Exchange.FirstAnswer = clock.Never }, false},
		{"too long from the first token to the last", SLO{Decode: 59 * ms}, same, false},
		{"one miss of two is a miss", SLO{TTFT: 98 * ms, E2E: 157 * ms}, same, false},
		{"a reply of one token meets objectives for the time between tokens", SLO{ITL: ms, TPOT: ms}, func(r *Record) { r.Exchange.Usage.Completion = 1 }, true},
		{"a reply without content misses the objective for the first token", SLO{TTFT: 1000 * ms}, func(r *Record) { r.Exchange.At = nil }, false},
		{"failed", SLO{E2E: 1000 * ms}, func(r *Record) { r.Outcome = Failed; r.Exchange.Err = &send.Error{} }, false},
		{"sent twice: the user waited for the first attempt, too", SLO{E2E: 1000 * ms}, func(r *Record) { r.Exchange.Attempts = 2 }, false},
	} {
		r := served()
		test.change(r)
		if got := test.slo.Good(r); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// TestMissed: a request that was stopped has missed an objective that no further reply could have met, and no other.
func TestMissed(t *testing.T) {
	stopped := func(r *Record) { r.Outcome = Cancelled; r.Exchange.End = 1162 * ms } // 160 ms after its start
	silent := func(r *Record) {
		stopped(r)
		r.Exchange.At, r.Exchange.FirstAnswer, r.Exchange.FirstEvent = nil, clock.Never, clock.Never
	}
	for _, test := range []struct {
		name   string
		slo    SLO
		change func(*Record)
		want   bool
	}{
		{"no first token, but still in time", SLO{TTFT: 160 * ms, TTFO: 160 * ms, E2E: 160 * ms, ITL: ms, TPOT: ms, TTST: ms, Decode: ms}, silent, false},
		{"no first token within its limit", SLO{TTFT: 159 * ms}, silent, true},
		{"no answer within its limit", SLO{TTFO: 159 * ms}, silent, true},
		{"not ended within its limit", SLO{E2E: 159 * ms}, stopped, true},
		{"first token in time", SLO{TTFT: 98 * ms}, stopped, false},
		{"first token too late", SLO{TTFT: 97 * ms}, stopped, true},
		{"second token too late", SLO{TTST: 9 * ms}, stopped, true},
		{"decoding for too long", SLO{Decode: 59 * ms}, stopped, true},
		{"the mean of the gaps can still fall", SLO{ITL: ms, TPOT: ms}, stopped, false},
		{"sent twice", SLO{E2E: 1000 * ms}, func(r *Record) { stopped(r); r.Exchange.Attempts = 2 }, true},
		{"no objectives", SLO{}, func(r *Record) { stopped(r); r.Exchange.Attempts = 2 }, false},
		{"never sent", SLO{E2E: ms}, func(r *Record) { stopped(r); r.Sent = false }, false},
		{"closed on purpose", SLO{E2E: ms}, func(r *Record) { r.Outcome = Disconnected }, false},
	} {
		r := served()
		test.change(r)
		if got := test.slo.Missed(r); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
