// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/internal/simulator"
)

// TestBranches: a row of new messages in a graph continues the conversation of the row of its session that it waits for, live reply
// included. Several rows can continue one row. The first row of a session begins a conversation, whatever it waits for. A row that waits
// for no row of its session is not sent, and the reason is reported.
func TestBranches(t *testing.T) {
	const reply = 100 * time.Millisecond
	virtually(t, simulator.Config{Latency: simulator.Latency{Prefill: reply}}, func(t bubble, e engine) {
		r := e.replay(t, Config{},
			`{"session_id": "root", "request_id": "r0", "wait_for": [], "message_mode": "delta", "messages": [{"role": "system", "content": "Be exact."}, {"role": "user", "content": "one"}], "output_length": 3}`,
			`{"session_id": "helper", "request_id": "h0", "wait_for": ["r0"], "message_mode": "delta", "messages": [{"role": "user", "content": "apart"}], "output_length": 3}`,
			`{"session_id": "root", "request_id": "f0", "wait_for": ["r0"], "message_mode": "delta", "messages": [{"role": "user", "content": "left"}], "output_length": 3}`,
			`{"session_id": "root", "request_id": "r1", "wait_for": ["h0", "r0"], "message_mode": "delta", "messages": [{"role": "user", "content": "two"}], "output_length": 3}`,
			`{"session_id": "root", "request_id": "f1", "wait_for": ["f0"], "message_mode": "delta", "messages": [{"role": "user", "content": "further"}], "output_length": 3}`,
			`{"session_id": "root", "request_id": "x0", "wait_for": ["h0"], "message_mode": "delta", "messages": [{"role": "user", "content": "lost"}], "output_length": 3}`)
		if r.err != nil {
			t.Fatal(r.err)
		}
		type message struct{ Role, Content string }
		said := map[string][]message{} // by the text of the last message
		for _, sent := range r.sent {
			var body struct{ Messages []message }
			if sent == nil {
				continue
			}
			if err := json.Unmarshal(sent.Body, &body); err != nil {
				t.Fatal(err)
			}
			said[body.Messages[len(body.Messages)-1].Content] = body.Messages
		}
		roles := func(of string) string {
			var all []string
			for _, m := range said[of] {
				all = append(all, m.Role)
			}
			return strings.Join(all, " ")
		}
		for of, want := range map[string]string{
			"one": "system user", "apart": "user", "left": "system user assistant user", "two": "system user assistant user",
			"further": "system user assistant user assistant user",
		} {
			if got := roles(of); got != want {
				t.Errorf("%s: %s, want %s", of, got, want)
			}
		}
		if first := said["left"]; len(first) != 4 || !slices.Equal(first[:3], said["further"][:3]) || !slices.Equal(first[:3], said["two"][:3]) || first[2].Content == "" {
			t.Errorf("%v, %v and %v do not begin alike", first, said["further"], said["two"])
		}
		if said["lost"] != nil || r.report.Figures().Rows.Failed != 1 {
			t.Errorf("%+v", r.report.Figures().Rows)
		}
		for _, row := range r.results {
			if row.Result.Row == 5 && (row.Result.Outcome+" "+row.Result.Reason != "failed "+measure.FailUnsendable || !strings.Contains(row.Result.Message, "is not known")) {
				t.Errorf("%+v", row.Result)
			}
		}
	})
}
