// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import "github.com/moonloop/moonloop/mooncake"

// tracelab reads one round per line. A round arrived with the last of its inputs, a message of the user or the result of a tool, and lasted
// until the model's last output. The file does not have the prompt, only how many of its tokens the provider had cached. The cached tokens
// are taken to be the beginning of the turn before.
var tracelab = spec{
	Format: "tracelab", about: "TraceLab's coding sessions (uw-syfi), one row for each call of the model; a row shares the block ids of the turn before as far as the provider had cached that turn",
	fields: []string{"input_tokens_total", "newly_append_tokens", "round_index"}, dates: true, models: true, blocks: true,
	decode: func(d *decoder, r *record) {
		r.known("round_index", "newly_append_tokens", "provider", "round_id") // known from the order and other fields
		row := &mooncake.Row{SessionID: r.name("session_id"), Model: r.name("model"), InputLength: r.counted("input_tokens_total"), OutputLength: r.count("output_tokens")}
		row.Observed.CachedTokens = r.count("prefix_tokens")
		var first, at, end mooncake.Opt[int64]
		r.objects(func(e *record) {
			kind, t := e.name("event_type"), e.instant("timestamp")
			asks := kind == "user_message" || kind == "tool_result"
			if t.Set && (!first.Set || t.V < first.V) {
				first = t
			}
			if t.Set && asks && !end.Set && (!at.Set || t.V > at.V) { // later inputs are for the next round
				at = t
			}
			if t.Set && !asks && (!end.Set || t.V > end.V) {
				end = t
			}
		}, "timing_events")
		if !at.Set {
			at = first
		}
		if !at.Set {
			d.skip(reasonNoTime)
			return
		}
		if end.Set && end.V > at.V {
			row.Observed.Duration = mooncake.Some(milliseconds(end.V - at.V))
		}
		d.add(&request{at: at.V, row: row, block: structureBlock, shares: mooncake.Some(row.Observed.CachedTokens.V)})
	},
}
