// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"hash/fnv"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// serveGen reads the batch jobs in ServeGen's repository: requests in the order in which they were submitted. Some files describe what
// prompts share, the others the lengths and durations of replies.
var serveGen = spec{
	Format: "servegen", about: "the batch jobs of ServeGen (data/offline), without times: block ids, or lengths and durations",
	fields: []string{"request_id", "type", "input_length"}, block: 16, blocks: true, global: true,
	decode: func(d *decoder, r *record) {
		row := &mooncake.Row{
			RequestID: r.name("request_id"), InputLength: r.counted("input_length"), OutputLength: r.count("output_length"), HashIDs: r.ids("hash_ids"),
		}
		row.Observed.Duration = r.millis(time.Millisecond, "duration")
		if kind := r.name("type"); kind == "text" || kind == "multimodal" {
			for _, name := range r.texts("img_ids") {
				if len(row.Images) == mooncake.MaxImages {
					d.lost.add("values", "img_ids: more than a row can have", 1)
					break
				}
				id := fnv.New64a()
				_, _ = id.Write([]byte(name))
				row.Images = append(row.Images, mooncake.Image{ID: id.Sum64()>>8 | uint64(d.file)<<56})
			}
		}
		d.add(&request{later: true, row: row})
	},
}
