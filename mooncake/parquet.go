// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// This file writes a trace as Parquet, for queries in SQL. Readers of traces can read it, too: its columns are the fields of rows.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/moonloop/moonloop/internal/parquetrows"
)

// parquetGroup is the number of rows of a row group: about 100 MiB of a trace with blocks of 16 tokens.
const parquetGroup = 1 << 16

// isParquet reports whether a trace with this name is written as Parquet.
func isParquet(name string) bool { return strings.HasSuffix(name, ".parquet") }

// parquetRow is a row as columns. Columns of nested lists, and of raw fields, are texts that contain JSON, because the library's own JSON
// type loses digits of large numbers.
type parquetRow struct {
	Timestamp    *float64         `json:"timestamp" parquet:"timestamp,optional"`
	InputLength  *int64           `json:"input_length" parquet:"input_length,optional"`
	OutputLength *int64           `json:"output_length" parquet:"output_length,optional"`
	HashIDs      []uint64         `json:"hash_ids" parquet:"hash_ids,optional,list"`
	HashRanges   json.RawMessage  `json:"hash_ranges" parquet:"hash_ranges,optional,string"`
	Replies      json.RawMessage  `json:"replies" parquet:"replies,optional,string"`
	Images       json.RawMessage  `json:"images" parquet:"images,optional,string"`
	TextInput    *string          `json:"text_input" parquet:"text_input,optional"`
	Messages     json.RawMessage  `json:"messages" parquet:"messages,optional,string"`
	Tools        json.RawMessage  `json:"tools" parquet:"tools,optional,string"`
	MessageMode  *string          `json:"message_mode" parquet:"message_mode,optional,dict"`
	Payload      json.RawMessage  `json:"payload" parquet:"payload,optional,string"`
	Extra        json.RawMessage  `json:"extra" parquet:"extra,optional,string"`
	Delay        *float64         `json:"delay" parquet:"delay,optional"`
	ToolWait     *float64         `json:"tool_wait_ms" parquet:"tool_wait_ms,optional"`
	WaitFor      json.RawMessage  `json:"wait_for" parquet:"wait_for,optional,string"` // an empty list is not an absent one
	Evidence     json.RawMessage  `json:"wait_evidence" parquet:"wait_evidence,optional,string"`
	SessionID    *string          `json:"session_id" parquet:"session_id,optional"`
	RequestID    *string          `json:"request_id" parquet:"request_id,optional"`
	Model        *string          `json:"model" parquet:"model,optional,dict"`
	Class        *string          `json:"class" parquet:"class,optional,dict"`
	Priority     *int64           `json:"priority" parquet:"priority,optional"`
	OTel         *parquetSpan     `json:"otel" parquet:"otel,optional"`
	Observed     *parquetObserved `json:"observed" parquet:"observed,optional"`
}

type parquetSpan struct {
	TraceID string `json:"trace_id" parquet:"trace_id"`
	SpanID  string `json:"span_id" parquet:"span_id"`
}

type parquetObserved struct {
	CachedTokens *int64   `json:"cached_tokens" parquet:"cached_tokens,optional"`
	TTFT         *float64 `json:"ttft_ms" parquet:"ttft_ms,optional"`
	Duration     *float64 `json:"duration_ms" parquet:"duration_ms,optional"`
	FinishReason *string  `json:"finish_reason" parquet:"finish_reason,optional,dict"`
}

// parquetWriter writes rows to a file.
type parquetWriter struct {
	out  *parquet.GenericWriter[parquetRow]
	text []byte
}

func newParquetWriter(to io.Writer) *parquetWriter {
	return &parquetWriter{out: parquet.NewGenericWriter[parquetRow](to, parquet.Compression(&zstd.Codec{}), parquet.MaxRowsPerRowGroup(parquetGroup),
		parquet.KeyValueMetadata(parquetrows.JSONColumns, "hash_ranges,replies,images,messages,tools,payload,extra,wait_for,wait_evidence"))}
}

// encode is an [Encode] that writes the row itself, and appends nothing to dst.
func (w *parquetWriter) encode(dst []byte, row *Row) ([]byte, *Row, error) {
	w.text = AppendRow(w.text[:0], row)
	var columns parquetRow
	dec := json.NewDecoder(bytes.NewReader(w.text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&columns); err != nil {
		if len(row.Foreign) > 0 {
			err = fmt.Errorf("the trace has fields of other tools, for which a Parquet trace has no columns; name a .jsonl file: %w", err)
		}
		return dst, row, fmt.Errorf("row cannot be written as Parquet: %w", err)
	}
	if _, err := w.out.Write([]parquetRow{columns}); err != nil {
		return dst, row, fmt.Errorf("row was not written: %w", err)
	}
	return dst, row, nil
}

// Close writes the end of the file.
func (w *parquetWriter) Close() error { return w.out.Close() }
