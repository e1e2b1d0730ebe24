// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import "github.com/moonloop/moonloop/mooncake"

var azure = spec{
	Format: Azure, about: "CSV of the Azure LLM inference traces of 2023, 2024 and 2025: lengths only", table: true,
	fields: []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, dates: true,
	decode: func(d *decoder, r *record) {
		d.add(&request{at: r.date("TIMESTAMP"), row: &mooncake.Row{InputLength: r.counted("ContextTokens"), OutputLength: r.counted("GeneratedTokens")}})
	},
}
