// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
	"testing"

	"github.com/moonloop/moonloop/capture/journal"
)

// TestReplayBehindAGateway: a gateway that does not forward the trace context makes a replay's requests look like production's, both its
// own span and the engine's. Their response ids show to which replay they belong.
func TestReplayBehindAGateway(t *testing.T) {
	with := func(r *journal.Inference, change ...func(*journal.Inference)) *journal.Inference {
		for _, c := range change {
			c(r)
		}
		return r
	}
	records := []journal.Record{
		with(replayed(t, "a", 0, 20, 1, 0, 500), response("r0")), call(50, 1, 0, 1, response("r0"), lasting(3)), call(60, 1, 0, 2, response("r0"), lasting(1)),
		with(replayed(t, "a", 1, 21, 1, 0, 500, 501), response("r1")), call(51, 1, 0, 2, response("r1"), lasting(3)),
		// The replay gave up; the engine did not.
		with(replayed(t, "a", 2, 22, 1, 0, 500), response("r2"), failed), call(52, 1, 0, 3, response("r2"), lasting(3)),
		// The engine failed a first attempt.
		with(replayed(t, "a", 3, 23, 1, 0, 500), response("r3")), call(53, 1, 0, 4, response("r3"), lasting(1), failed), call(53, 2, 0, 6, response("r3"), lasting(1)),
		// Production: another id, and an id that some server uses again at another time.
		call(1, 1, 0, 1, response("p")), call(2, 1, 0, 900, response("r0")), call(3, 1, 0, 901),
		call(4, 1, 0, 902, response("q"), failed),
	}
	production := []string{"1/1 0 1000 10 []", "2/1 899 1000 10 []", "3/1 900 1000 10 []"}
	m, res := compileBytes(t, Options{}, journalOf(records...))
	equal(t, "production", production, lines(m.rows(t, "production")))
	equal(t, "replay", []string{"20/1 0 512 3 [0]", "21/1 10 1024 3 [0 1]", "23/1 30 512 3 [0]"}, lines(m.rows(t, "run a")))
	p, a := res.Traces[0], res.Traces[1]
	equal(t, "spans of production and replay", []int64{4, 10}, []int64{p.Spans, a.Spans})
	equal(t, "merged", []int64{0, 5}, []int64{p.Merged, a.Merged})
	equal(t, "failed", []int64{1, 2}, []int64{dropped(p.Meta.Dropped, lostFailed), dropped(a.Meta.Dropped, lostFailed)})

	// A trace that is too large for its ancestry, that of the two attempts, changes nothing.
	_, res = compileBytes(t, Options{MaxTraceSpans: 1}, journalOf(records...))
	equal(t, "spans, one trace too large", []int64{4, 10}, []int64{res.Traces[0].Spans, res.Traces[1].Spans})
	equal(t, "failed, one trace too large", []int64{1, 2}, []int64{dropped(res.Traces[0].Meta.Dropped, lostFailed), dropped(res.Traces[1].Meta.Dropped, lostFailed)})

	// Dropped replays also drop what others recorded of them.
	only, res := compileBytes(t, Options{Replays: ReplaysDrop}, journalOf(records...))
	equal(t, "production alone", string(m["production"]), string(only["production"]))
	equal(t, "counted", int64(10), dropped(res.Traces[1].Meta.Dropped, lostPolicy))
	only, _ = compileBytes(t, Options{Replays: ReplaysOnly}, journalOf(records...))
	equal(t, "the replay alone", lines(m.rows(t, "run a")), lines(only.rows(t, "run a")))

	// A replay's requests that are not rows, of calibration and of a warm-up.
	apart := func(trace uint64, second int64, change ...func(*journal.Inference)) *journal.Inference {
		return with(call(trace, 1, 0, second, func(r *journal.Inference) { r.Run = name(t, "a") }), change...)
	}
	more := append(slices.Clone(records), apart(30, 11, response("c0"), lasting(3)), call(70, 1, 0, 12, response("c0"), lasting(1)),
		apart(31, 13, response("c1"), lasting(3), failed), call(71, 1, 0, 14, response("c1"), lasting(1)), apart(32, 15))
	for _, replays := range []Replays{ReplaysSeparate, ReplaysDrop} {
		again, res := compileBytes(t, Options{Replays: replays}, journalOf(more...))
		equal(t, "production next to calibration", string(m["production"]), string(again["production"]))
		equal(t, "its spans, and the replay's", []int64{4, 15}, []int64{res.Traces[0].Spans, res.Traces[1].Spans})
		if replays == ReplaysSeparate {
			equal(t, "the replay", lines(m.rows(t, "run a")), lines(again.rows(t, "run a")))
			equal(t, "no rows", int64(5), dropped(res.Traces[1].Meta.Dropped, lostNoRow))
			equal(t, "merged as before", a.Merged, res.Traces[1].Merged)
		}
	}

	slices.Reverse(records)
	again, _ := compileBytes(t, Options{}, journalOf(records...))
	equal(t, "in another order", m, again)
}
