// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
)

// This file writes the formats that group rows by session: SATF and Weka's.

func fixed(s string) func(*encoder) string { return func(*encoder) string { return s } }

// wekaSessions writes one conversation on each line. Times count from the first row of the trace. Ids are those of the trace, from 1, but
// their scope is declared as the conversation, because AIPerf supports no other scope.
var wekaSessions = sessionFormat{
	// A session a/b belongs to an agent of session a.
	key: func(row *mooncake.Row) string {
		name, _, _ := strings.Cut(row.SessionID, "/")
		return name
	},
	begin: fixed(""), next: fixed(""), end: fixed(""),
	append: appendWeka,
}

type wekaTalk struct {
	ID       string   `json:"id,omitempty"`
	Type     string   `json:"type,omitempty"`
	Agent    string   `json:"agent_id,omitempty"`
	Kind     string   `json:"subagent_type,omitempty"`
	Status   string   `json:"status,omitempty"`
	At       any      `json:"t,omitempty"`
	Models   []string `json:"models"`
	Block    int      `json:"block_size,omitempty"`
	Scope    string   `json:"hash_id_scope,omitempty"`
	Tools    int      `json:"tool_tokens"`
	System   int      `json:"system_tokens"`
	Requests []any    `json:"requests"`
}

type wekaCall struct {
	At     json.Number `json:"t"`
	Type   string      `json:"type"`
	Model  string      `json:"model"`
	In     int64       `json:"in"`
	Out    int64       `json:"out"`
	IDs    []uint64    `json:"hash_ids"`
	Inputs []string    `json:"input_types"`
	Output []string    `json:"output_types"`
	Stop   string      `json:"stop"`
	Took   json.Number `json:"api_time,omitempty"`
	TTFT   json.Number `json:"ttft,omitempty"`
	Think  json.Number `json:"think_time,omitempty"`
}

// appendWeka appends a conversation. Conversations of its agents are inserted at their first requests.
func appendWeka(e *encoder, dst []byte, key string, rows []*mooncake.Row) ([]byte, error) {
	talk := &wekaTalk{ID: key, Models: []string{}, Block: e.block(), Scope: "local"}
	agents := map[string]*wekaTalk{}
	for _, row := range rows {
		_, agent, _ := strings.Cut(row.SessionID, "/")
		in := talk
		if agent != "" {
			if in = agents[agent]; in == nil {
				in = &wekaTalk{Type: "subagent", Agent: agent, Kind: "unknown", Status: "completed", At: inSeconds(row.Timestamp.V), Models: []string{}}
				agents[agent] = in
				talk.Requests = append(talk.Requests, in)
			}
		}
		if row.Model != "" && !slices.Contains(in.Models, row.Model) {
			in.Models = append(in.Models, row.Model)
		}
		call := wekaCall{
			At: inSeconds(row.Timestamp.V), Type: "s", Model: row.Model, In: row.InputLength.V, Out: row.OutputLength.V, IDs: []uint64{},
			Inputs: []string{}, Output: []string{}, Stop: row.Observed.FinishReason,
		}
		for _, id := range row.HashIDs {
			call.IDs = append(call.IDs, id+1) // ids begin with 1 in the format
		}
		for _, time := range []struct {
			ms mooncake.Opt[float64]
			to *json.Number
		}{{row.Observed.Duration, &call.Took}, {row.Observed.TTFT, &call.TTFT}, {row.Delay, &call.Think}} {
			if time.ms.Set {
				*time.to = inSeconds(time.ms.V)
			}
		}
		in.Requests = append(in.Requests, call)
	}
	return append(appendJSON(dst, talk), '\n'), nil
}

// satfSessions writes one JSON object. Times count from the first row of the trace.
var satfSessions = sessionFormat{
	key: func(row *mooncake.Row) string { return row.SessionID },
	begin: func(e *encoder) string {
		return `{"format":"satf","format_version":"2.0.0","time_base":"us","block_size_tokens":` + strconv.Itoa(e.block()) +
			`,"producer":{"name":"moonloop"},"sessions":[` + "\n"
	},
	next: fixed(",\n"), end: fixed("\n]}\n"),
	append: appendSATF,
}

type satfWritten struct {
	Session string      `json:"session_id"`
	Nodes   []any       `json:"nodes"`
	Edges   []satfArrow `json:"edges"`
}

type satfCall struct {
	Kind    string          `json:"kind"`
	ID      string          `json:"id"`
	Took    *int64          `json:"duration_us,omitempty"`
	Start   *int64          `json:"min_start_delay_us,omitempty"`
	Metrics *satfMetrics    `json:"performance_metrics,omitempty"`
	Payload satfCallPayload `json:"payload"`
}

type satfMetrics struct {
	Source string  `json:"source"`
	TTFT   float64 `json:"time_to_first_token_us"`
}

type satfCallPayload struct {
	In     int64             `json:"input_tokens_total"`
	Out    int64             `json:"output_tokens"`
	Blocks []uint64          `json:"kv_block_ids"`
	Other  map[string]string `json:"request_parameters,omitempty"`
}

type satfTool struct {
	Kind    string         `json:"kind"`
	ID      string         `json:"id"`
	Took    *int64         `json:"duration_us,omitempty"`
	Payload map[string]any `json:"payload"`
}

type satfArrow struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Delay int64  `json:"delay_after_predecessor_us"`
}

// appendSATF appends a session. A turn waits for the turn before it, or for the requests that it names. The part of the wait in which tools
// ran (ToolWait) becomes a tool call; the rest (Delay) is the delay of the edge.
func appendSATF(e *encoder, dst []byte, key string, rows []*mooncake.Row) ([]byte, error) {
	micros := func(ms float64) *int64 {
		us := int64(math.Round(ms * 1e3))
		return &us
	}
	s := satfWritten{Session: key, Nodes: []any{}, Edges: []satfArrow{}}
	ids, names := map[string]string{}, map[string]bool{} // the nodes' ids by the request ids of rows; and all ids of nodes in use
	before := ""
	for i, row := range rows {
		id := cmp.Or(row.RequestID, "llm:"+strconv.Itoa(i+1))
		for names[id] {
			id += "'"
		}
		names[id] = true
		var from []string
		switch {
		case row.WaitFor != nil:
			for _, other := range row.WaitFor {
				if node := ids[other]; node != "" {
					from = append(from, node)
				} else {
					e.lost.add("values", "wait_for: satf has no edges to requests of other sessions", 1)
				}
			}
		case before != "":
			from = []string{before}
		}
		if len(from) == 0 && !row.Timestamp.Set {
			return nil, fmt.Errorf("a row of session %.64q cannot be written for satf: it has no timestamp and waits for no earlier row; give it a timestamp", key)
		}
		if row.RequestID != "" {
			ids[row.RequestID] = id
		}
		before = id
		node := satfCall{
			Kind: "llm_infer", ID: id,
			Payload: satfCallPayload{In: row.InputLength.V, Out: row.OutputLength.V, Blocks: row.HashIDs},
		}
		if node.Payload.Blocks == nil {
			node.Payload.Blocks = []uint64{}
		}
		if row.Timestamp.Set && (len(from) == 0 || row.WaitFor == nil) { // in a graph, a row that waits starts when the rows for which it waits have ended
			node.Start = micros(row.Timestamp.V)
		}
		if row.Observed.Duration.Set {
			node.Took = micros(row.Observed.Duration.V)
		}
		if row.Observed.TTFT.Set {
			node.Metrics = &satfMetrics{"engine", row.Observed.TTFT.V * 1e3}
		}
		if row.Model != "" {
			node.Payload.Other = map[string]string{"model": row.Model}
		}
		delay := int64(0)
		if row.Delay.Set && (row.WaitFor != nil || !row.Timestamp.Set) { // together with a timestamp it has no effect, except in a graph
			delay = *micros(row.Delay.V)
		}
		if row.ToolWait.Set && len(from) > 0 {
			tool := strconv.Itoa(i + 1)
			s.Nodes = append(s.Nodes, satfTool{"tool_call", "tool_call:" + tool, nil, map[string]any{"tool_name": "unknown", "tool_call_id": tool}},
				satfTool{"tool_result", "tool_result:" + tool, micros(row.ToolWait.V), map[string]any{"tool_call_id": tool}})
			for _, node := range from {
				s.Edges = append(s.Edges, satfArrow{node, "tool_call:" + tool, 0})
			}
			s.Edges = append(s.Edges, satfArrow{"tool_call:" + tool, "tool_result:" + tool, 0})
			from = []string{"tool_result:" + tool}
		}
		s.Nodes = append(s.Nodes, node)
		for _, node := range from {
			s.Edges = append(s.Edges, satfArrow{node, id, delay})
		}
	}
	return appendJSON(dst, s), nil
}
