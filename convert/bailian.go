// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

var bailian = spec{
	Format: Bailian, about: "Alibaba's qwen-bailian-usagetraces-anon", fields: []string{"chat_id", "parent_chat_id"}, block: 16, blocks: true,
	decode: func(d *decoder, r *record) {
		q := &request{chat: r.integer("chat_id"), at: r.at(time.Second, "timestamp")}
		if parent := r.integer("parent_chat_id"); parent.V >= 0 { // -1: the chat begins here
			q.parent = parent
		}
		r.known("turn") // the parents give the same order of turns
		q.row = &mooncake.Row{InputLength: r.counted("input_length"), OutputLength: r.count("output_length"), HashIDs: r.ids("hash_ids")}
		d.add(q)
	},
}
