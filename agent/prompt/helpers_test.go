// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// text returns the text of blocks, computed as the scheme's description says: each block has a number of words (block), and the text ends
// after n words.
func text(seed uint64, block, n int, ids ...uint64) string {
	var s strings.Builder
	for _, id := range ids {
		s.Write(reference(words, seed, id, min(block, n)))
		if n -= block; n <= 0 {
			break
		}
	}
	return s.String()
}

func newBuilder(tb testing.TB, o Options) *Builder {
	tb.Helper()
	b, err := NewBuilder(o)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func build(tb testing.TB, b *Builder, index int64, row *mooncake.Row, h *History) Prompt {
	tb.Helper()
	p, err := b.Build(index, row, h)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// read returns a request's body, of exactly the stated length.
func read(tb testing.TB, r send.Request) []byte {
	tb.Helper()
	body := r.Body.Open()
	if n := body.(interface{ Len() int }).Len(); int64(n) != r.Body.Size {
		tb.Errorf("Len is %d, Size %d", n, r.Body.Size)
	}
	b, err := io.ReadAll(body)
	if err != nil {
		tb.Fatal(err)
	}
	if int64(len(b)) != r.Body.Size {
		tb.Errorf("%d bytes were read, Size is %d", len(b), r.Body.Size)
	}
	return b
}

// decoded returns a body as encoding/json understands it, after a check that no name occurs twice.
func decoded(tb testing.TB, r send.Request) map[string]any {
	tb.Helper()
	b := read(tb, r)
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		tb.Fatalf("%v in %s", err, b)
	}
	dec := json.NewDecoder(strings.NewReader(string(b)))
	if _, err := dec.Token(); err != nil {
		tb.Fatal(err)
	}
	seen := map[string]bool{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			tb.Fatal(err)
		}
		if seen[name.(string)] {
			tb.Errorf("%q occurs twice in %s", name, b)
		}
		seen[name.(string)] = true
		var skip json.RawMessage
		if err := dec.Decode(&skip); err != nil {
			tb.Fatal(err)
		}
	}
	return m
}

// content returns the text of the only message of a chat body, or the prompt of a completions body.
func content(tb testing.TB, r send.Request) string {
	tb.Helper()
	m := decoded(tb, r)
	if prompt, ok := m["prompt"].(string); ok {
		return prompt
	}
	messages := m["messages"].([]any)
	if len(messages) != 1 || messages[0].(map[string]any)["role"] != "user" {
		tb.Fatalf("want one message of the user, got %v", messages)
	}
	return messages[0].(map[string]any)["content"].(string)
}

func lengthRow(in, out int64, ids ...uint64) *mooncake.Row {
	return &mooncake.Row{InputLength: mooncake.Some(in), OutputLength: mooncake.Some(out), HashIDs: ids}
}

func textRow(text string) *mooncake.Row { return &mooncake.Row{TextInput: mooncake.Some(text)} }

func messagesRow(messages string) *mooncake.Row {
	return &mooncake.Row{Messages: json.RawMessage(messages)}
}

func deltaRow(messages string) *mooncake.Row {
	return &mooncake.Row{Messages: json.RawMessage(messages), MessageMode: "delta"}
}
