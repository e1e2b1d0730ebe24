// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

var weka = spec{
	Format: "weka", about: "coding-agent traces of Weka (cc-traces-weka), a conversation in each object",
	fields: []string{"requests", "block_size"}, blocks: true, models: true,
	decode: func(d *decoder, r *record) {
		block := d.blockSize(r, 64, "block_size")
		scope := d.conversation()
		if r.name("hash_id_scope") == "global" {
			scope = 0
		}
		wekaRequests(d, r, r.name("id"), scope, block, 0)
	},
}

// maxSubagents is the maximum depth of subagents in each other. Each level of an object is parsed again within it.
const maxSubagents = 32

// wekaRequests reads the requests of a conversation and, each as a separate session, those of its subagents.
func wekaRequests(d *decoder, r *record, session string, scope, block, depth int) {
	if depth > maxSubagents {
		r.fail("requests", "", fmt.Sprintf("subagents are in each other more than %d times", maxSubagents), "")
		return
	}
	r.objects(func(q *record) {
		if q.name("type") == "subagent" {
			q.known("models", "total_tokens", "tool_use_count") // known from its requests
			wekaRequests(d, q, session+"/"+q.name("agent_id"), scope, block, depth+1)
			return
		}
		q.known("think_time") // known from the times
		row := &mooncake.Row{Model: q.name("model"), SessionID: session, HashIDs: q.ids("hash_ids")}
		row.InputLength, row.OutputLength = q.counted("in"), q.count("out")
		row.Observed.TTFT, row.Observed.Duration = q.millis(time.Second, "ttft"), q.millis(time.Second, "api_time")
		row.Observed.FinishReason = q.reason("stop")
		d.add(&request{at: q.at(time.Second, "t"), row: row, block: block, scope: scope})
	}, "requests")
}
