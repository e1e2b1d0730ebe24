// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestUnknownTypesAreRefused: the memory of a message that is decoded into an unknown type is not known. If a Collector renames its types,
// the gate must not let everything pass.
func TestUnknownTypesAreRefused(t *testing.T) {
	var refused []Reason
	g := NewGate(Options{Limit: 1 << 30, Refused: func(r Reason) { refused = append(refused, r) }})
	c := &codec{CodecV2: encoding.GetCodecV2(proto.Name), gate: g}
	into := new(structpb.Value)
	body := mem.BufferSlice{mem.SliceBuffer{0x1a, 1, 'x'}} // a text
	if err := c.Unmarshal(body, into); err != nil {
		t.Fatal(err)
	}
	if into.GetKind() != nil {
		t.Error("the message was decoded")
	}
	if len(refused) != 1 || refused[0] != ReasonMalformed {
		t.Errorf("refused: %v", refused)
	}
	if u := g.claim(into); u == nil || u.ended != errUnknown {
		t.Errorf("its call does not get the refusal: %+v", u)
	}
}
