// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

// PieceKind says what a [Piece] of a prompt is.
type PieceKind uint8

// The kinds of pieces.
const (
	PieceMessage    PieceKind = iota // begins a message: Role is set, Text is empty
	PieceText                        // text of the message; several in a row belong together without a separator
	PieceReasoning                   // an earlier reply's reasoning, as PieceText
	PieceToolCall                    // canonical JSON of a tool call of the message
	PieceToolResult                  // a tool's result that is not text, as canonical JSON
	PieceMedia                       // canonical JSON of an image, a sound, a file: how many tokens it is cannot be told from its bytes
	PieceOther                       // canonical JSON of a part or a member of a message that is not known
	PieceTool                        // canonical JSON of a tool definition; stands outside of messages
)

// Piece is a part of a canonical prompt. Texts of escaped JSON and of tools are made for the visit; all others are
// pieces of the attribute itself and cost nothing.
type Piece struct {
	Kind PieceKind
	// Role is the message's: system, user, assistant, tool or what the producer wrote, at most 256 bytes.
	Role string
	Text string
}

// Extent says how much of a prompt the telemetry holds.
type Extent uint8

// The extents.
const (
	ExtentNone     Extent = iota // no text: content capture is off, or the text is redacted
	ExtentComplete               // nothing is known to be missing
	ExtentCut                    // the end is missing; what was visited is a prefix of the prompt
	ExtentGaps                   // something before the end is missing; what was visited identifies nothing
)

// String returns the extent's name in lower case.
func (e Extent) String() string {
	return [...]string{"none", "complete", "cut", "gaps"}[e&3]
}

// Walked is what a walk saw.
type Walked struct {
	Extent Extent
	// Messages counts all messages, Textless those that have neither text nor a tool call.
	Messages, Textless int
	// Bytes counts the bytes of all pieces.
	Bytes int64
}
