// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// vidur also reads the columns that forks of Vidur added: sessions and block ids.
var vidur = spec{
	Format: "vidur", about: "CSV of the simulator Vidur: arrival times in seconds, lengths, and block_hash_ids if a fork of it wrote them", table: true,
	fields: []string{"arrived_at", "num_prefill_tokens", "num_decode_tokens"}, blocks: true, global: true,
	decode: func(d *decoder, r *record) {
		r.known("session_turn_index") // the order shows it
		row := &mooncake.Row{SessionID: r.name("session_id"), RequestID: r.name("request_id"), HashIDs: r.ids("block_hash_ids")}
		row.InputLength, row.OutputLength = r.counted("num_prefill_tokens"), r.counted("num_decode_tokens")
		d.add(&request{at: r.at(time.Second, "arrived_at"), row: row, block: d.blocksOf(row, r, "block_size")})
	},
}

var splitwise = spec{
	Format: "splitwise", about: "CSV of splitwise-sim: arrival times in seconds, and lengths", table: true,
	fields: []string{"arrival_timestamp", "prompt_size", "token_size"},
	decode: func(d *decoder, r *record) {
		d.add(&request{at: r.at(time.Second, "arrival_timestamp"), row: &mooncake.Row{
			RequestID: r.name("request_id"), InputLength: r.counted("prompt_size"), OutputLength: r.counted("token_size"),
		}})
	},
}

var kvcacheSimulator = spec{
	Format: "kvcache-simulator", about: "JSON lines of kvcache-simulator: block ids without times",
	fields: []string{"block_size", "hash_ids", "input_length"}, blocks: true, global: true,
	decode: func(d *decoder, r *record) {
		row := &mooncake.Row{InputLength: r.counted("input_length"), OutputLength: r.count("output_length"), HashIDs: r.ids("hash_ids")}
		d.add(&request{later: true, row: row, block: d.blockSize(r, 0, "block_size")})
	},
}

// blis reads the table of a TraceV2, whose header is a separate file. A time of 0 was not measured.
var blis = spec{
	Format: "blis", about: "CSV of BLIS (inference-sim) TraceV2: lengths, and times of requests and replies in microseconds", table: true,
	fields: []string{"arrival_time_us", "input_tokens", "output_tokens", "num_chunks"}, models: true, fails: true,
	decode: func(d *decoder, r *record) {
		r.known("round_index", "text_tokens") // known from the order, and from input_tokens
		row := &mooncake.Row{SessionID: r.name("session_id"), RequestID: r.name("x_request_id", "request_id"), Model: r.name("model"), Class: r.name("slo_class")}
		// In a row with a class, 0 is the most urgent priority. In a row without one, 0 means that there is no priority.
		if priority := r.integer("vllm_priority"); priority.V != 0 || row.Class != "" {
			row.Priority = priority
		}
		row.InputLength, row.OutputLength = r.counted("input_tokens"), r.counted("output_tokens")
		if server := r.count("server_input_tokens"); server.V > 0 {
			row.InputLength = server
		}
		sent, first, last := r.span(time.Microsecond, "send_time_us"), r.span(time.Microsecond, "first_chunk_time_us"), r.span(time.Microsecond, "last_chunk_time_us")
		row.Observed = observed(sent.V, first.V, last.V)
		row.Observed.FinishReason = r.reason("finish_reason")
		if status := r.name("status"); status != "" && status != "ok" && d.failed(reasonFailed) {
			return
		}
		d.add(&request{at: r.at(time.Microsecond, "arrival_time_us"), row: row})
	},
}
