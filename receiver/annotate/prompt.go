// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/genai"
)

// Prompt writes the canonical prompt of content to h, and returns what there was. It is the one place that says how a
// prompt becomes bytes:
//
//   - a message is its role, 0A, its pieces one after the other with nothing between them, 0A. Pieces are texts, reasoning,
//     tool calls, tool results and media, as [genai.Piece] has them.
//   - the definition of a tool is a message of the role "tools".
//   - the last message of content that was cut has no 0A at its end: what is written is then the beginning of what the
//     whole would have been, and its full cells are those of the whole.
//
// Several contents after one another make one prompt.
func Prompt(h *blockhash.Hasher, content *genai.Content) genai.Walked {
	w := promptWriter{h: h}
	seen := content.Walk(w.piece)
	if seen.Extent != genai.ExtentCut {
		w.end()
	}
	return seen
}

// toolsRole is the role of a message that defines a tool; that of its result is "tool".
const toolsRole = "tools"

// promptWriter writes pieces.
type promptWriter struct {
	h    *blockhash.Hasher
	open bool // a message waits for its end
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
	default:
		_, _ = w.h.WriteString(p.Text) // never fails
	}
	return true
}

func (w *promptWriter) end() {
	if w.open {
		w.h.Text("")
		w.open = false
	}
}
