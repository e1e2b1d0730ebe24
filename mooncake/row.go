// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"encoding/json"
	"math"

	"github.com/go-json-experiment/json/jsontext"
)

// BlockSize is the number of prompt tokens in a block of the public Mooncake traces.
const BlockSize = 512

// MaxBlockSize is the maximum block size in a sidecar, in tokens. No model has such a long context.
const MaxBlockSize = 1 << 24

// Opt is a value that may be absent from a row. The zero Opt is absent.
type Opt[T any] struct {
	V   T
	Set bool
}

// Some returns a present value.
func Some[T any](v T) Opt[T] { return Opt[T]{V: v, Set: true} }

// Or returns the value, or def if it is absent.
func (o Opt[T]) Or(def T) T {
	if o.Set {
		return o.V
	}
	return def
}

// UnmarshalJSON reads a value; null means absent.
func (o *Opt[T]) UnmarshalJSON(text []byte) error {
	*o = Opt[T]{Set: string(text) != "null"}
	return json.Unmarshal(text, &o.V)
}

// Kind is the kind of a row's prompt.
type Kind uint8

// The kinds of rows. Each row has exactly one.
const (
	KindLength   Kind = iota // input_length, with hash_ids or without
	KindText                 // text_input, sent as one user message
	KindMessages             // messages, with tools or without, sent unchanged
	KindPayload              // payload: the whole request body, sent unchanged
)

// Row is one request of a trace. Slices and raw JSON belong to the row; a reader never reuses them.
type Row struct {
	// Timestamp is the arrival time in milliseconds, from any zero, whatever unit the file has (ReaderOptions.Unit); digits below 1 ms are
	// kept.
	Timestamp Opt[float64]
	// Delay is the time from the end of the session's previous turn to this one, in milliseconds.
	Delay Opt[float64]
	// WaitFor are the request ids of the rows that this one follows in its graph, in any order. Instead of at its timestamp, the row starts
	// when all of them have ended and Delay and ToolWait have passed. Nil: the row does not belong to a graph. Empty: it is a root of a
	// graph and starts at its timestamp, even if earlier rows of its session have not ended.
	WaitFor []string
	// Evidence says how the edge to each row of WaitFor was found; nil if unknown.
	Evidence []Evidence
	// ToolWait is the part of the wait in which tools ran, in milliseconds. Delay is the rest.
	ToolWait Opt[float64]
	// InputLength is the number of prompt tokens, above 0. OutputLength is the number of tokens
	// that the reply had, 0 or more.
	InputLength, OutputLength Opt[int64]
	// HashIDs are the ids of the prompt's blocks, in order; an id identifies its block and all blocks before it. Nil if the row has none.
	HashIDs []uint64
	// HashRanges are the ids of the same prompt in blocks as small as a real engine's (Meta.FineBlockSize): an id identifies its block and
	// all blocks before it. Consecutive ids form one range. The numbers are unrelated to HashIDs. Nil if the row has none, else
	// ceil(input_length/fine block) ids in all.
	HashRanges []HashRange
	// Replies are the parts of the prompt that were replies to earlier rows, in the order of the prompt. An engine had them in its cache,
	// because it had generated them. A replay inserts its own live replies there.
	Replies []Reply

	// Images are sent with the prompt, after its text; only with input_length or text_input.
	Images []Image

	TextInput   Opt[string]     // text_input
	Messages    json.RawMessage // messages: an array of objects with a role
	Tools       json.RawMessage // tools; only with messages
	Payload     json.RawMessage // payload: a whole request body
	MessageMode string          // message_mode: "", "history" or "delta"
	Extra       json.RawMessage // extra: an object merged into the request body, one level deep

	SessionID string // session_id; empty: the row belongs to no session
	RequestID string // request_id
	Model     string // model; a replay's own model overrides it

	// Class is the name of a kind of request, such as interactive or batch. There are figures for each class, and a replay may give a
	// class a priority. Empty: none.
	Class string
	// Priority is the priority in the request's body, in the engine's own scale: vLLM handles the lowest number first. A replay may replace
	// it by that of the class.
	Priority Opt[int64]

	// OTel is the production span from which the row was captured; zero if unknown.
	OTel SpanRef

	// Observed is what production's telemetry reported for the request; zero if nothing is known.
	Observed Observed

	// Foreign are known fields of other tools that have no effect on a replay (strict_priority, branches, ...), by name. Nil if there are
	// none.
	Foreign map[string]json.RawMessage
}

// HashRange is Count consecutive ids: First, First+1, ...
type HashRange struct {
	First uint64
	Count int64 // 1 or more
}

// Reply is a part of a prompt that was the reply to an earlier row.
type Reply struct {
	Back   int64 // how many rows earlier in the file that row is, 1 or more
	At     int64 // prompt tokens of this row before the reply, 1 or more
	Tokens int64 // tokens of the reply, 1 or more; at least one token of the prompt follows
}

// Image is an image in a prompt. Images with equal ids have one size, and are the same image.
type Image struct {
	ID            uint64
	Width, Height int // pixels; both 0: unknown
}

// SpanRef identifies a span by its ids, in binary.
type SpanRef struct {
	TraceID [16]byte
	SpanID  [8]byte
}

// IsZero reports whether the reference identifies no span: one of its ids is all zeros, which is invalid.
func (s SpanRef) IsZero() bool { return s.TraceID == [16]byte{} || s.SpanID == [8]byte{} }

// Kind returns the kind of the row's prompt.
func (r *Row) Kind() Kind {
	switch {
	case r.Payload != nil:
		return KindPayload
	case r.Messages != nil:
		return KindMessages
	case r.TextInput.Set:
		return KindText
	}
	return KindLength
}

// compact removes the white space between the tokens of raw fields.
func (r *Row) compact() {
	for _, raw := range []*json.RawMessage{&r.Messages, &r.Tools, &r.Payload, &r.Extra} {
		if *raw != nil {
			_ = (*jsontext.Value)(raw).Compact() // it has been parsed
		}
	}
	for name, raw := range r.Foreign {
		v := jsontext.Value(raw)
		_ = v.Compact()
		r.Foreign[name] = json.RawMessage(v)
	}
}

// Blocks returns the hash ids that the row's input length has room for, as [BlockCount] says. HashIDs may have more ids; they have no
// effect.
func (r *Row) Blocks(blockSize int) []uint64 {
	if n := BlockCount(r.InputLength.V, blockSize); len(r.HashIDs) > n {
		return r.HashIDs[:n]
	}
	return r.HashIDs
}

// BlockCount returns ceil(tokens/blockSize), 0 without tokens. A block size of 0 or below means [BlockSize].
func BlockCount(tokens int64, blockSize int) int {
	if tokens <= 0 {
		return 0
	}
	if blockSize <= 0 {
		blockSize = BlockSize
	}
	return int((tokens-1)/int64(blockSize) + 1) // written so that no sum can overflow
}

// BlockFill returns how many of the prompt's tokens are in block i, which must exist: the block size, which must be above 0, except in a
// partial last block. The result is the same for all blocks of 2^32 tokens or more.
func BlockFill(tokens int64, blockSize, i int) uint32 {
	size := int64(blockSize)
	return uint32(min(size, tokens-int64(i)*size, math.MaxUint32)) //nolint:gosec // above 0
}
