// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/genai"
)

// Written describes what [Prompt] read and wrote.
type Written struct {
	genai.Walked
	// MediaEnd is the number of bytes of the canonical prompt up to the end of the last medium, including contents that were written
	// before; 0 if there is none. It is a multiple of [blockhash.CellSize].
	MediaEnd int64
}

// Prompt writes the canonical prompt of content to h, and returns what it contained. This function defines how a prompt becomes bytes:
//
//   - a message is its role, 0A, its pieces one after the other with nothing between them, 0A. Pieces are texts, reasoning,
//     tool calls, tool results, parts that are not known, and media, as [genai.Piece] has them.
//   - a medium is {"media":"…"} with the SHA-256 of its piece in hex, followed by as many 00 as fill the cell. So the text after it begins
//     with a new cell: the bytes of an image have nothing to do with its tokens.
//   - the definition of a tool is a message of the role "tools".
//   - if content was cut, its last message has no 0A at its end. So its bytes are the beginning of the bytes of the complete content, and
//     its full cells are equal to the first cells of the complete content.
//
// Several contents one after another make one prompt.
func Prompt(h *blockhash.Hasher, content *genai.Content) Written {
	w := promptWriter{h: h}
	seen := content.Walk(w.piece)
	if seen.Extent != genai.ExtentCut {
		w.end()
	}
	return Written{seen, w.mediaEnd}
}

// Reply writes the reply to a whole prompt after it, as the message that it becomes in the next prompt, and returns its end. ok is false if
// the reply is not known completely; the text written is then useless, so the caller must take the chain of the prompt before the call.
func Reply(h *blockhash.Hasher, reply *genai.Reply) (end blockhash.End, ok bool) {
	w := promptWriter{h: h}
	if !reply.Walk(w.piece) {
		return blockhash.End{}, false
	}
	w.end()
	return h.End()
}

// toolsRole is the role of a message that defines a tool; that of its result is "tool".
const toolsRole = "tools"

// promptWriter writes pieces.
type promptWriter struct {
	h        *blockhash.Hasher
	open     bool // a message has not ended
	mediaEnd int64
}

func (w *promptWriter) piece(p genai.Piece) bool {
	switch p.Kind {
	case genai.PieceMessage:
		w.end()
		w.h.Role(p.Role)
		w.open = true
	case genai.PieceTool:
		w.end()
		w.h.Role(toolsRole)
		w.h.Text(p.Text)
	case genai.PieceMedia:
		w.medium(p.Text)
	default:
		_, _ = w.h.WriteString(p.Text) // never fails
	}
	return true
}

// noBytes are the zeros that fill up a cell.
var noBytes = strings.Repeat("\x00", blockhash.CellSize)

func (w *promptWriter) medium(piece string) {
	sum := sha256.Sum256([]byte(piece))
	_, _ = w.h.WriteString(`{"media":"` + hex.EncodeToString(sum[:]) + `"}`)
	if begun := w.h.Bytes() % blockhash.CellSize; begun > 0 {
		_, _ = w.h.WriteString(noBytes[begun:])
	}
	w.mediaEnd = w.h.Bytes()
}

func (w *promptWriter) end() {
	if w.open {
		w.h.Text("")
		w.open = false
	}
}
