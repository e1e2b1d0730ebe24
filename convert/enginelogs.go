// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// vllm is never detected, and must be named, because its fields are those of Mooncake traces and only its units differ.
var vllm = spec{
	Format: "vllm", about: "JSON lines of vLLM's timed_trace, in seconds", block: 16, blocks: true,
	decode: func(d *decoder, r *record) {
		row := &mooncake.Row{InputLength: r.counted("input_length"), OutputLength: r.count("output_length"), HashIDs: r.ids("hash_ids")}
		d.add(&request{at: r.at(time.Second, "timestamp"), row: row})
	},
}

var lmcache = spec{
	Format: "lmcache", about: "LMCache's log of lookups (lookup_hashes_*.jsonl): no output lengths",
	fields: []string{"chunk_hashes", "seq_len"}, blocks: true, global: true, dates: true, models: true,
	decode: func(d *decoder, r *record) {
		row := &mooncake.Row{Model: r.name("model_name"), RequestID: r.name("request_id"), InputLength: r.counted("seq_len"), HashIDs: r.digests("chunk_hashes")}
		d.add(&request{at: r.date("timestamp"), row: row, block: d.blockSize(r, 256, "chunk_size")})
	},
}

// vcr reads traces of vllm-vcr, which begin with an object about the engine.
var vcr = spec{
	Format: "vllm-vcr", about: "JSON lines of vllm-vcr: lengths, times and block hashes of an engine's requests",
	fields: []string{"prompt_tokens", "output_tokens", "ttft_ms"}, header: "meta", blocks: true, global: true,
	decode: func(d *decoder, r *record) {
		if r.has("meta") {
			meta := r.object("meta")
			d.block, d.model = d.blockSize(meta, 0, "block_size"), meta.name("model")
			return
		}
		row := &mooncake.Row{InputLength: r.counted("prompt_tokens"), OutputLength: r.count("output_tokens"), HashIDs: r.ids("block_hashes")}
		row.Observed.CachedTokens, row.Observed.TTFT, row.Observed.FinishReason = r.count("cached_tokens"), r.millis(time.Millisecond, "ttft_ms"), r.reason("finish_reason")
		row.Model, row.Observed.Duration = d.model, vcrDuration(r, row.Observed.TTFT)
		q := &request{row: row, block: d.block, later: !r.has("arrival_ms")}
		if !q.later {
			q.at = r.at(time.Millisecond, "arrival_ms")
		}
		if row.HashIDs != nil && d.block == 0 {
			r.fail("block_hashes", "", "no meta line before it says how many tokens a block has", "put {\"meta\": {\"block_size\": 16}} with the engine's block size on the first line")
		}
		d.add(q)
	},
}

// vcrDuration returns the duration of a request: the time to its first token and the gaps between its tokens.
func vcrDuration(r *record, ttft mooncake.Opt[float64]) mooncake.Opt[float64] {
	summary := r.object("itl_summary")
	mean, count := summary.millis(time.Millisecond, "mean_ms"), summary.count("count")
	gaps := r.numbers(func(s string) (int64, error) { return decimal(s, time.Millisecond) }, "itl_ms")
	for _, ns := range gaps {
		ttft.V += milliseconds(ns)
	}
	if len(gaps) == 0 {
		ttft.V += mean.V * float64(count.V)
	}
	ttft.Set = ttft.Set && (len(gaps) > 0 || count.V > 0)
	return ttft
}

// baseten reads the columns of Baseten's files as JSON lines. The ids may be negative: they are hashes of 64 bits.
var baseten = spec{
	Format: "baseten", about: "Baseten's production traces, as Parquet or JSON lines",
	fields: []string{"timestamp_start_unix_ms", "input_tokens"}, blocks: true, global: true, dates: true, fails: true,
	decode: func(d *decoder, r *record) {
		row := &mooncake.Row{SessionID: r.name("provided_session_id", "poor_man_session_id"), HashIDs: r.digests("total_hashes")}
		row.InputLength, row.OutputLength = r.counted("input_tokens"), r.count("output_tokens")
		row.Observed.TTFT, row.Observed.Duration = r.millis(time.Millisecond, "duration_ttft_ms"), r.millis(time.Millisecond, "duration_e2e_ms")
		if r.yes("request_canceled") && d.failed(reasonFailed) {
			return
		}
		d.add(&request{at: r.at(time.Millisecond, "timestamp_start_unix_ms"), row: row, block: d.blocksOf(row, r, "block_size")})
	},
}
