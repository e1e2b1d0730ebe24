// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import "github.com/moonloop/moonloop/mooncake"

// tracelab reads a round for each line. It came with its first event: what the user said, or the result of a tool.
var tracelab = spec{
	Format: "tracelab", about: "TraceLab's coding sessions (uw-syfi): a model's rounds, with the tokens that its provider had cached",
	fields: []string{"input_tokens_total", "newly_append_tokens", "round_index"}, dates: true, models: true,
	decode: func(d *decoder, r *record) {
		r.known("round_index", "newly_append_tokens", "provider", "round_id") // the order and other fields say so
		row := &mooncake.Row{SessionID: r.name("session_id"), Model: r.name("model"), InputLength: r.counted("input_tokens_total"), OutputLength: r.count("output_tokens")}
		row.Observed.CachedTokens = r.count("prefix_tokens")
		var at mooncake.Opt[int64]
		r.objects(func(e *record) {
			e.known("event_type")
			if t := e.instant("timestamp"); t.Set && (!at.Set || t.V < at.V) {
				at = t
			}
		}, "timing_events")
		if !at.Set {
			d.skip(reasonNoTime)
			return
		}
		d.add(&request{at: at.V, row: row})
	},
}
