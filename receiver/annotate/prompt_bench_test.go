// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// BenchmarkPrompt finds, unescapes and hashes the prompt of a span in memory: the cost of a prompt per byte. The bytes counted are those
// of the attribute, which is JSON.
func BenchmarkPrompt(b *testing.B) {
	const english = "The quick brown fox jumps over the lazy dog, and nobody knows why it does so. "
	const code = "\tif err != nil {\n\t\treturn fmt.Errorf(\"row %d: %w\", n, err)\n\t}\n"
	const chinese = "月亮绕着地球转，数据绕着月亮转。"
	prose := strings.Repeat(strings.Repeat(english, 6)+"\n", 200)
	for _, c := range []struct {
		name     string
		messages string
	}{
		{"plain, 94 kB", inMessage(quoted(b, strings.Repeat(english, 1200)))},
		{"plain, 8 kB", inMessage(quoted(b, strings.Repeat(english, 105)))},
		{"plain, 200 B", inMessage(quoted(b, strings.Repeat(english, 3)[:200]))},
		{"plain, 200 messages of 400 B", strings.Repeat(inMessage(quoted(b, strings.Repeat(english, 5)))+",", 199) + inMessage(`"end"`)},
		{"plain, Chinese", inMessage(quoted(b, strings.Repeat(chinese, 2000)))},
		{"escaped, paragraphs", inMessage(quoted(b, prose))},
		{"escaped, code", inMessage(quoted(b, strings.Repeat(code, 1500)))},
		{"escaped, a line every 28 B", inMessage(quoted(b, strings.Repeat("Der schnelle Fuchs springt.\n", 3000)))},
		{"escaped, Chinese as \\u", inMessage(escapedUnicode(strings.Repeat(chinese, 1000)))},
	} {
		b.Run(c.name, func(b *testing.B) {
			json := "[" + c.messages + "]"
			_, span := oneSpan(b, chat(attributes{"gen_ai.input.messages": json}))
			reader := genai.NewReader(genai.Options{})
			key, err := blockhash.NewKey(make([]byte, blockhash.KeySize))
			if err != nil {
				b.Fatal(err)
			}
			h, err := blockhash.NewHasher(key, blockhash.TextDomain(key))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(json)))
			b.ReportAllocs()
			for b.Loop() {
				h.Reset()
				if annotate.Prompt(h, &reader.Span("", span).Content).Extent == genai.ExtentNone {
					b.Fatal("no prompt")
				}
				h.Chain()
			}
		})
	}
}

func inMessage(text string) string {
	return `{"role":"user","parts":[{"type":"text","content":` + text + `}]}`
}

func quoted(tb testing.TB, text string) string {
	tb.Helper()
	encoded, err := json.Marshal(text)
	if err != nil {
		tb.Fatal(err)
	}
	return string(encoded)
}

// escapedUnicode quotes a text as Python's json module does.
func escapedUnicode(text string) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(text)) {
		fmt.Fprintf(&b, `\u%04x`, unit)
	}
	return `"` + b.String() + `"`
}
