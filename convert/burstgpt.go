// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

var burstGPT = spec{
	Format: BurstGPT, about: "CSV of BurstGPT, with or without session ids and elapsed times: arrival times and lengths", table: true,
	fields: []string{"Timestamp", "Model", "Request tokens", "Response tokens"}, models: true, fails: true,
	decode: func(d *decoder, r *record) {
		r.known("Total tokens")
		row := &mooncake.Row{Model: r.name("Model"), SessionID: r.name("Session ID")} // sessions came with version 1.2
		q := &request{at: r.at(time.Second, "Timestamp"), row: row}
		row.InputLength, row.OutputLength = r.counted("Request tokens"), r.counted("Response tokens")
		if elapsed := r.span(time.Second, "Elapsed time"); elapsed.Set {
			row.Observed.Duration = mooncake.Some(milliseconds(elapsed.V))
			q.ends = mooncake.Some(q.at + elapsed.V) // the next turn waits for it
		}
		if row.OutputLength.V > 0 || !d.failed(reasonNoReply) {
			d.add(q)
		}
	},
}
