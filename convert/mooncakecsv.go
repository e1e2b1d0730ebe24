// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// mooncakeCSV reads Mooncake's fields from a table, as people export and GuideLLM's trace_synthetic reads them. hash_ids are a JSON array in
// their cell.
var mooncakeCSV = spec{
	Format: "mooncake-csv", about: "Mooncake's fields as the columns of a CSV: milliseconds, lengths, hash_ids such as [0, 1]",
	table: true, fields: []string{"timestamp", "input_length", "output_length"}, blocks: true, models: true, global: true,
	decode: func(d *decoder, r *record) {
		row := &mooncake.Row{
			InputLength: r.counted("input_length"), OutputLength: r.count("output_length"), HashIDs: r.ids("hash_ids"),
			SessionID: r.name("session_id"), RequestID: r.name("request_id"), Model: r.name("model"), Delay: r.millis(time.Millisecond, "delay"),
		}
		q := &request{row: row, block: d.blockSize(r, mooncake.BlockSize, "block_size"), later: !r.has("timestamp") && row.SessionID != ""}
		if !q.later {
			q.at = r.at(time.Millisecond, "timestamp")
		}
		d.add(q)
	},
}
