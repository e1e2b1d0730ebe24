// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package export

import (
	"encoding/json"

	"github.com/moonloop/moonloop/agent/report/lines"
)

// Request is a line of requests.jsonl as a row of a table: the request of the row, and its result. The names are those in the file,
// including those under "result". Times and durations are in milliseconds; nil means unknown. The ids of the prompt are only in the file.
//
// The fields are not grouped in embedded structs: nil would be written as 0 there.
type Request struct {
	Timestamp *float64 `json:"-" parquet:"timestamp"`
	Session   string   `json:"-" parquet:"session_id,dict"`
	RequestID string   `json:"-" parquet:"request_id"`
	RowModel  string   `json:"-" parquet:"model,dict"`
	Input     int64    `json:"-" parquet:"input_length"`
	Output    int64    `json:"-" parquet:"output_length"`

	Outcome    string    `json:"outcome" parquet:"outcome,dict"`
	Reason     string    `json:"reason" parquet:"reason,dict"`
	Message    string    `json:"message" parquet:"message,dict"`
	Row        int64     `json:"row" parquet:"row,delta"`
	Turn       int64     `json:"turn" parquet:"turn"`
	Model      string    `json:"request_model" parquet:"request_model,dict"`
	Intended   *float64  `json:"intended" parquet:"intended"`
	Dispatched *float64  `json:"dispatched" parquet:"dispatched"`
	Admitted   *float64  `json:"admitted" parquet:"admitted"`
	Start      *float64  `json:"start" parquet:"start"`
	Wire       *float64  `json:"wire" parquet:"wire"`
	First      *float64  `json:"first" parquet:"first"`
	Last       *float64  `json:"last" parquet:"last"`
	End        *float64  `json:"end" parquet:"end"`
	Lateness   *float64  `json:"lateness_ms" parquet:"lateness_ms"`
	TTFT       *float64  `json:"ttft_ms" parquet:"ttft_ms"`
	Latency    *float64  `json:"latency_ms" parquet:"latency_ms"`
	ITL        *float64  `json:"itl_ms" parquet:"itl_ms"`
	Prompt     *int64    `json:"-" parquet:"prompt_tokens"`
	Completion *int64    `json:"-" parquet:"completion_tokens"`
	Reasoning  *int64    `json:"-" parquet:"reasoning_tokens"`
	Cached     *int64    `json:"-" parquet:"cached_tokens"`
	Predicted  *int64    `json:"predicted_cached_tokens" parquet:"predicted_cached_tokens"`
	Carried    int64     `json:"carried_reply_tokens" parquet:"carried_reply_tokens"`
	Invented   int64     `json:"invented_reply_tokens" parquet:"invented_reply_tokens"`
	AsAsked    string    `json:"prompt_agreement" parquet:"prompt_agreement,dict"`
	AsLong     string    `json:"output_agreement" parquet:"output_agreement,dict"`
	Status     int64     `json:"status" parquet:"status"`
	Attempts   int64     `json:"attempts" parquet:"attempts"`
	Reused     bool      `json:"connection_reused" parquet:"connection_reused"`
	Finish     string    `json:"finish_reason" parquet:"finish_reason,dict"`
	TraceID    string    `json:"trace_id" parquet:"trace_id"`
	SpanID     string    `json:"span_id" parquet:"span_id"`
	Gaps       []float64 `json:"gaps_ms" parquet:"gaps_ms"`
}

func parseRequest(text []byte) (*Request, error) {
	var line struct {
		Timestamp *float64 `json:"timestamp"`
		Session   string   `json:"session_id"`
		RequestID string   `json:"request_id"`
		Model     string   `json:"model"`
		Input     int64    `json:"input_length"`
		Output    int64    `json:"output_length"`
		Result    *struct {
			Request
			Usage struct {
				Prompt     *int64 `json:"prompt_tokens"`
				Completion *int64 `json:"completion_tokens"`
				Cached     *int64 `json:"cached_tokens"`
				Reasoning  *int64 `json:"reasoning_tokens"`
			} `json:"usage"`
		} `json:"result"`
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return nil, err
	}
	if line.Result == nil {
		return nil, lines.ErrNoResult
	}
	r, u := &line.Result.Request, line.Result.Usage
	r.Timestamp, r.Session, r.RequestID, r.RowModel, r.Input, r.Output = line.Timestamp, line.Session, line.RequestID, line.Model, line.Input, line.Output
	r.Prompt, r.Completion, r.Cached, r.Reasoning = u.Prompt, u.Completion, u.Cached, u.Reasoning
	return r, nil
}
