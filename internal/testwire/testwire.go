// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package testwire writes encoded OTLP that no SDK would write, for tests of code that receives OTLP.
package testwire

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Within wraps the body of a message or text in other messages, whose field numbers are given from the outside in.
func Within(body []byte, numbers ...protowire.Number) []byte {
	for _, number := range slices.Backward(numbers) {
		body = protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), body)
	}
	return body
}

// Nested returns an attribute's value that is a list in a list, this many deep. It is written from the inside out, in time
// proportional to the depth.
func Nested(depth int) []byte {
	var heads [][]byte
	size := 0
	for range depth {
		for _, number := range []protowire.Number{1, 5} {
			head := protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(size))
			heads = append(heads, head)
			size += len(head)
		}
	}
	out := make([]byte, 0, size)
	for _, head := range slices.Backward(heads) {
		out = append(out, head...)
	}
	return out
}
