// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

// PieceKind is the kind of a [Piece].
type PieceKind uint8

// The kinds of pieces.
const (
	PieceMessage    PieceKind = iota // begins a message: Role is set, Text is empty
	PieceText                        // text of the message; join consecutive ones without a separator
	PieceReasoning                   // reasoning of an earlier reply; join as for PieceText
	PieceToolCall                    // canonical JSON of a tool call of the message
	PieceToolResult                  // canonical JSON of a tool's result that is not text
	PieceMedia                       // canonical JSON of an image, audio or a file, whose number of tokens does not follow from its bytes
	PieceOther                       // canonical JSON of an unknown part or member of a message
	PieceTool                        // canonical JSON of a tool definition, which belongs to no message
)

// Piece is a part of a canonical prompt. Text that was escaped in JSON, and the JSON of tools, is a copy; other text is a slice of the
// attribute, without a copy.
type Piece struct {
	Kind PieceKind
	// Role is the role of the message: system, user, assistant, tool or the producer's own name, at most 256 bytes.
	Role string
	Text string
}

// Extent says how much of a prompt the telemetry has.
type Extent uint8

// The extents.
const (
	ExtentNone     Extent = iota // no text: content capture is off, or the text is redacted
	ExtentComplete               // nothing is known to be missing
	ExtentCut                    // the end is missing; the pieces visited are a prefix of the prompt
	ExtentGaps                   // something before the end is missing; the pieces visited do not identify the prompt
)

// String returns the extent's name in lower case.
func (e Extent) String() string {
	return [...]string{"none", "complete", "cut", "gaps"}[e&3]
}

// Walked sums up a walk over a prompt's pieces.
type Walked struct {
	Extent Extent
	// Messages is the number of messages, Textless the number of those without a piece: no text, no tool call and no other part.
	Messages, Textless int
	// Bytes counts the bytes of all pieces.
	Bytes int64
}
