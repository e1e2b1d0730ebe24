// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/moonloop/moonloop/genai"
)

// ascii encodes a text as JSON in which everything outside ASCII is escaped, as Python does.
func ascii(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	var b strings.Builder
	for _, r := range string(encoded) {
		if r < 128 {
			b.WriteByte(byte(r))
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04X`, unit)
		}
	}
	return b.String()
}

// TestEscapedTexts compares decoded texts with the originals, for any runs of letters and escapes. Joined pieces must have at most a few kB:
// longer ones would make memory grow with the length of a prompt.
func TestEscapedTexts(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	words := []string{"\n", "\t", `"`, `\`, "é", "深い", "🙂", "\u2028", "x", "\x01"}
	for range 100 {
		var text strings.Builder
		for range random.IntN(60) {
			switch random.IntN(6) {
			case 0:
				text.WriteString(strings.Repeat("plain ", random.IntN(1000)))
			case 1:
				text.WriteString(strings.Repeat(words[random.IntN(len(words))], random.IntN(3000)))
			default:
				text.WriteString("some " + words[random.IntN(len(words))])
			}
		}
		want := text.String()
		usual, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, encoded := range []string{string(usual), ascii(want)} {
			var got strings.Builder
			walked := inference(t, genai.Options{}, map[string]any{"gen_ai.input.messages": `[{"role":"user","content":` + encoded + `}]`}).
				Content.Walk(func(p genai.Piece) bool {
				if len(p.Text) > 8<<10 && !strings.Contains(encoded, p.Text) {
					t.Errorf("a piece of %d bytes was put together", len(p.Text))
				}
				got.WriteString(p.Text)
				return true
			})
			if got.String() != want || walked.Extent != genai.ExtentComplete || walked.Bytes != int64(len(want)) {
				t.Fatalf("%d bytes in, %d out, said to be %+v: %.200q", len(want), got.Len(), walked, encoded)
			}
		}
	}
}
