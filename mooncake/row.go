// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"encoding/json"
	"math"

	"github.com/go-json-experiment/json/jsontext"
)

// BlockSize is the number of prompt tokens that one hash id of a public Mooncake trace stands for.
const BlockSize = 512

// MaxBlockSize is the greatest block size that a sidecar may give, in tokens: more than any model's context.
const MaxBlockSize = 1 << 24

// Opt is a value that a row may leave out. The zero Opt is an absent value.
type Opt[T any] struct {
	V   T
	Set bool
}

// Some returns a present value.
func Some[T any](v T) Opt[T] { return Opt[T]{V: v, Set: true} }

// Or returns the value, or def where it is absent.
func (o Opt[T]) Or(def T) T {
	if o.Set {
		return o.V
	}
	return def
}

// UnmarshalJSON reads a value; null is one that is absent.
func (o *Opt[T]) UnmarshalJSON(text []byte) error {
	*o = Opt[T]{Set: string(text) != "null"}
	return json.Unmarshal(text, &o.V)
}

// Kind says which of its fields gives a row its prompt.
type Kind uint8

// The kinds of rows. A row has exactly one.
const (
	KindLength   Kind = iota // input_length, with or without hash_ids
	KindText                 // text_input, sent as one user message
	KindMessages             // messages, with or without tools, sent as they are
	KindPayload              // payload, the whole request body, sent as it is
)

// Row is one request of a trace. Slices and raw JSON belong to the row; a reader never reuses them.
type Row struct {
	// Timestamp is the arrival in milliseconds, from any zero, whatever the file has (ReaderOptions.Unit); digits below 1 ms are kept.
	Timestamp Opt[float64]
	// Delay is the wait in milliseconds after the session's previous turn has completed.
	Delay Opt[float64]
	// WaitFor are the request ids of the rows that this one follows in its graph, in no order. It starts when all of them have ended, and
	// Delay and ToolWait after that, in place of its timestamp. Nil: the row is of no graph. Empty: it is a root of one, which starts
	// at its timestamp, whatever happened to its session's rows.
	WaitFor []string
	// Evidence says for each of WaitFor what it was taken from; nil where nobody said.
	Evidence []Evidence
	// ToolWait is the part of the wait, in milliseconds, in which tools ran. Delay is the rest.
	ToolWait Opt[float64]
	// InputLength is the number of prompt tokens, above 0. OutputLength is the number of tokens
	// that the reply had, 0 or more.
	InputLength, OutputLength Opt[int64]
	// HashIDs are the ids of the prompt's blocks, in order; an id stands for its block and all blocks
	// before it. Nil when the row has none.
	HashIDs []uint64
	// HashRanges are the ids of the same prompt in blocks as fine as a real engine caches (Meta.FineBlockSize): an id stands
	// for its block and all blocks before it, and ids that follow one another are one range. They are numbers apart from
	// HashIDs. Nil when the row has none, else they are ceil(input_length/fine block) ids in all.
	HashRanges []HashRange
	// Replies are the parts of the prompt that were replies to earlier rows, in order of their place in it. An engine had
	// them in its cache, since it had generated them: a replay puts its own live replies there.
	Replies []Reply

	// Images are shown with the prompt, behind its text; only with input_length or text_input.
	Images []Image

	TextInput   Opt[string]     // text_input
	Messages    json.RawMessage // messages: an array of objects with a role
	Tools       json.RawMessage // tools: only with messages
	Payload     json.RawMessage // payload: a whole request body
	MessageMode string          // message_mode: "", "history" or "delta"
	Extra       json.RawMessage // extra: an object merged into the request body, one level deep

	SessionID string // session_id; empty: the row stands alone
	RequestID string // request_id
	Model     string // model; overridden by the replay's own model when one is given

	// Class names the kind of request that this is, such as interactive or batch: figures are taken of each class, and a replay may give
	// its requests a priority. Empty: none.
	Class string
	// Priority is the priority of the request's body, as the engine counts it: vLLM handles the lowest number first. A replay may have
	// another one for the class.
	Priority Opt[int64]

	// OTel names the production span that the row was captured from; zero when unknown.
	OTel SpanRef

	// Observed is what production's telemetry said of the request; zero when nothing is known.
	Observed Observed

	// Foreign holds the fields of other tools that are known and have no effect on a replay
	// (strict_priority, branches, ...), by name. Nil when there are none.
	Foreign map[string]json.RawMessage
}

// HashRange is Count ids one after another: First, First+1, ...
type HashRange struct {
	First uint64
	Count int64 // 1 or more
}

// Reply is a part of a prompt that was the reply to an earlier row.
type Reply struct {
	Back   int64 // how many rows before this one in the file that row is, 1 or more
	At     int64 // prompt tokens of this row before the reply, 1 or more
	Tokens int64 // its length, 1 or more; the row has a token or more after it
}

// Image is a picture beside a prompt. Equal ids, of one size, are the same picture.
type Image struct {
	ID            uint64
	Width, Height int // pixels; both 0: nobody said
}

// SpanRef names a span by its ids, in binary.
type SpanRef struct {
	TraceID [16]byte
	SpanID  [8]byte
}

// IsZero reports whether the reference names no span: one of its ids is all zeros, which is nobody's.
func (s SpanRef) IsZero() bool { return s.TraceID == [16]byte{} || s.SpanID == [8]byte{} }

// Kind returns what gives the row its prompt.
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

// Blocks returns the hash ids that the row's input length has room for: at most ceil(n/blockSize).
// Ids past that are kept in HashIDs and have no effect.
func (r *Row) Blocks(blockSize int) []uint64 {
	if n := BlockCount(r.InputLength.V, blockSize); len(r.HashIDs) > n {
		return r.HashIDs[:n]
	}
	return r.HashIDs
}

// BlockCount returns ceil(tokens/blockSize), 0 without tokens.
func BlockCount(tokens int64, blockSize int) int {
	if tokens <= 0 {
		return 0
	}
	return int((tokens-1)/int64(blockSize) + 1) // no sum that could overflow
}

// BlockFill returns how many of this many tokens are in block i, which is not beyond them: the block size except in a partial
// last block.
// Blocks of 2^32 tokens or more are all the same.
func BlockFill(tokens int64, blockSize, i int) uint32 {
	size := int64(blockSize)
	return uint32(min(size, tokens-int64(i)*size, math.MaxUint32)) //nolint:gosec // above 0
}
