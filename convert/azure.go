// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import "github.com/moonloop/moonloop/mooncake"

var azure = spec{
	Format: Azure, about: "CSV of the Azure LLM inference traces of 2023, 2024 and 2025: arrival times and lengths", table: true,
	fields: []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, dates: true,
	decode: func(d *decoder, r *record) {
		row := &mooncake.Row{InputLength: r.counted("ContextTokens"), OutputLength: r.counted("GeneratedTokens")}
		if n := r.count("NumImages"); n.V > mooncake.MaxImages {
			d.lost.add("values", "NumImages: more than a row can have", 1)
		} else {
			for range n.V { // the images are unknown, so each is a different one, without a size
				row.Images = append(row.Images, mooncake.Image{ID: uint64(d.file)<<40 | uint64(d.conversation())})
			}
		}
		d.add(&request{at: r.date("TIMESTAMP"), row: row})
	},
}
