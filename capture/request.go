// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import "github.com/moonloop/moonloop/capture/journal"

// annotated reports whether a receiver or a replay annotated the span.
func annotated(r *journal.Inference) bool { return r.Identity != journal.NoIdentity || r.Row.Set }

// known reports whether anything is known of a prompt in addition to its length.
func known(p *journal.Prompt) bool {
	return p.Identity != journal.None && (len(p.HashIDs) > 0 || p.Chain.Bytes > 0)
}

// wholeOf returns a value that identifies the whole prompt, as far as it is known.
func wholeOf(p *journal.Prompt) uint64 {
	if n := len(p.HashIDs); n > 0 {
		return p.HashIDs[n-1]
	}
	return p.Chain.Tail
}

// endOf returns the end of a span in ns since the Unix epoch, never before its start.
func endOf(r *journal.Inference) int64 { return max(r.Start, r.End) }

// modelOf returns the model of the reply, if it is known, else the requested one.
func modelOf(r *journal.Inference) journal.Name {
	if r.Answered.IsZero() {
		return r.Model
	}
	return r.Answered
}

// shift converts the times of a request to another clock, by this many ns.
func shift(r *journal.Inference, by int64, clock uint64) {
	r.Start, r.End, r.Clock = r.Start+by, r.End+by, clock
	if r.FirstToken.Set {
		r.FirstToken.V += by
	}
}
