// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/blockhash"
)

// message is a role and a text.
type message [2]string

// hash returns the chain of messages, in memory of its own.
func hash(h *blockhash.Hasher, messages []message) blockhash.Chain {
	h.Reset()
	for _, m := range messages {
		h.Role(m[0])
		h.Text(m[1])
	}
	chain := h.Chain()
	chain.Cells, chain.Ends = slices.Clone(chain.Cells), slices.Clone(chain.Ends)
	return chain
}

func randomMessages(r *rand.Rand, n int) []message {
	roles := []string{"system", "user", "assistant", "tool", "tools", "critic"}
	messages := make([]message, n)
	for i := range messages {
		size := r.IntN(400)
		if r.IntN(4) == 0 {
			size = r.IntN(3)
		}
		messages[i] = message{roles[r.IntN(len(roles))], randomText(r, size)}
	}
	return messages
}

// TestEndsTellSharedMessages: two prompts have as many ends in common as they share messages from the start, and no more, whatever their
// cells are.
func TestEndsTellSharedMessages(t *testing.T) {
	h := testHasher(t)
	r := rand.New(rand.NewPCG(3, 3))
	for range 400 {
		shared := randomMessages(r, r.IntN(12))
		a := append(slices.Clone(shared), randomMessages(r, 1+r.IntN(4))...)
		b := append(slices.Clone(shared), randomMessages(r, r.IntN(4))...)
		ca, cb := hash(h, a), hash(h, b)
		want := common(a, b)
		if got := common(ca.Ends, cb.Ends); got != want {
			t.Fatalf("prompts of %d and %d messages that share %d share %d ends", len(a), len(b), want, got)
		}
		for i, e := range ca.Ends[want:] {
			if slices.ContainsFunc(cb.Ends, func(o blockhash.End) bool { return o.Value == e.Value }) {
				t.Fatalf("the end of message %d occurs in a prompt that differs from message %d on", want+i, want)
			}
		}
		if len(ca.Ends) != len(a) || ca.Ends[len(a)-1].Bytes != ca.Bytes {
			t.Fatalf("%d messages of %d bytes have the ends %v", len(a), ca.Bytes, ca.Ends)
		}
		if err := ca.Validate(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplyIsTheNextPrompts: the end of a reply equals its end in the prompt of the next turn, and the chain computed before does not
// change.
func TestReplyIsTheNextPrompts(t *testing.T) {
	h := testHasher(t)
	r := rand.New(rand.NewPCG(4, 4))
	for range 200 {
		prompt, reply := randomMessages(r, 1+r.IntN(8)), randomText(r, r.IntN(1000))
		next := hash(h, append(slices.Clone(prompt), message{"assistant", reply}, message{"user", "and then?"}))
		want := hash(h, prompt)

		h.Reset()
		for _, m := range prompt {
			h.Role(m[0])
			h.Text(m[1])
		}
		chain := h.Chain()
		h.Role("assistant")
		_, _ = h.WriteString(reply[:len(reply)/2])
		h.Text(reply[len(reply)/2:])
		end, ok := h.End()
		if !ok || end != next.Ends[len(prompt)] {
			t.Fatalf("the reply ends as %v, and in the next prompt as %v", end, next.Ends[len(prompt)])
		}
		if diff := cmp.Diff(want, chain, equateEmpty); diff != "" || !slices.Equal(want.Ends, chain.Ends) {
			t.Fatalf("a reply changes the chain of the prompt before it: %s", diff)
		}
		if err := chain.ValidateReply(end); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEndsAreBounded: the first ends are kept, and none whose position does not fit.
func TestEndsAreBounded(t *testing.T) {
	h := testHasher(t)
	h.Reset()
	for range blockhash.MaxEnds + 10 {
		h.Role("user")
		h.Text("x")
	}
	if chain := h.Chain(); len(chain.Ends) != blockhash.MaxEnds || chain.Validate() != nil {
		t.Errorf("%d ends, want %d: %v", len(chain.Ends), blockhash.MaxEnds, chain.Validate())
	}
	if _, ok := h.End(); !ok {
		t.Error("no end of a reply after more messages than have ends")
	}
	h.Reset()
	h.Role("user")
	h.Text("short")
	h.Role("user")
	piece := strings.Repeat("x", 1<<20)
	for range blockhash.MaxEndBytes/len(piece) + 1 {
		_, _ = h.WriteString(piece)
	}
	h.Text("")
	chain := h.Chain()
	if _, ok := h.End(); ok || len(chain.Ends) != 1 || chain.Validate() != nil {
		t.Errorf("%d ends of a text whose second message is too long, want 1; one at its end: %v", len(chain.Ends), ok)
	}
}

func TestEndsInBinary(t *testing.T) {
	h := testHasher(t)
	want := hash(h, randomMessages(rand.New(rand.NewPCG(5, 5)), 40))
	cells, _ := want.AppendBinary(nil)
	var got blockhash.Chain
	if err := got.UnmarshalBinary(cells); err != nil {
		t.Fatal(err)
	}
	if err := got.UnmarshalEnds(want.AppendEnds(nil)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(want.Ends, got.Ends) {
		t.Errorf("written %v, read %v", want.Ends, got.Ends)
	}
	if n := len(want.AppendEnds(nil)); n != 12*40 {
		t.Errorf("40 ends are %d bytes", n)
	}
}

// TestEndsRefused: ends that no hasher made from the text are an error, and leave the chain unchanged.
func TestEndsRefused(t *testing.T) {
	h := testHasher(t)
	good := hash(h, []message{{"user", strings.Repeat("x", 122)}, {"assistant", "two"}, {"user", "three"}})
	for reason, change := range map[string]func([]blockhash.End) []blockhash.End{
		"beyond the text":               func(e []blockhash.End) []blockhash.End { e[2].Bytes = good.Bytes + 1; return e },
		"not ascending":                 func(e []blockhash.End) []blockhash.End { e[1].Bytes = e[0].Bytes; return e },
		"descending":                    func(e []blockhash.End) []blockhash.End { slices.Reverse(e); return e },
		"before the text":               func(e []blockhash.End) []blockhash.End { e[0].Bytes = 0; return e },
		"an unknown role":               func(e []blockhash.End) []blockhash.End { e[0].Role = 6; return e },
		"not the cell that ends there":  func(e []blockhash.End) []blockhash.End { e[0].Value++; return e },
		"more than MaxEnds":             func([]blockhash.End) []blockhash.End { return make([]blockhash.End, blockhash.MaxEnds+1) },
		"beyond the length of any text": func(e []blockhash.End) []blockhash.End { e[2].Bytes = blockhash.MaxEndBytes + 1; return e },
	} {
		c := good
		c.Ends = change(slices.Clone(good.Ends))
		if err := c.Validate(); !errors.Is(err, blockhash.ErrLength) {
			t.Errorf("%s: %v", reason, err)
		}
		data := []byte(nil)
		for _, e := range c.Ends {
			data = append(data, referenceWords([]uint64{e.Value})...)
			data = append(data, referenceWords([]uint64{uint64(e.Bytes)<<4 | uint64(e.Role)})[:4]...)
		}
		read := good
		read.Ends = slices.Clone(good.Ends)
		if reason != "beyond the length of any text" { // which does not fit 32 bits
			if err := read.UnmarshalEnds(data); !errors.Is(err, blockhash.ErrLength) || !slices.Equal(read.Ends, good.Ends) {
				t.Errorf("%s: read with error %v as %v", reason, err, read.Ends)
			}
		}
	}
	if err := (&blockhash.Chain{}).UnmarshalEnds(make([]byte, 13)); !errors.Is(err, blockhash.ErrLength) {
		t.Errorf("a torn end: %v", err)
	}
	for reason, e := range map[string]blockhash.End{
		"the prompt's own": {Bytes: good.Bytes, Role: blockhash.RoleAssistant},
		"too short":        {Bytes: good.Bytes + 10, Role: blockhash.RoleAssistant},
		"the user's":       {Bytes: good.Bytes + 100, Role: blockhash.RoleUser},
		"none":             {},
	} {
		if err := good.ValidateReply(e); !errors.Is(err, blockhash.ErrLength) {
			t.Errorf("a reply that is %s: %v", reason, err)
		}
	}
}

// FuzzEnds: any value of the attribute is refused, or encodes to itself.
func FuzzEnds(f *testing.F) {
	h := testHasher(f)
	chain := hash(h, randomMessages(rand.New(rand.NewPCG(6, 6)), 6))
	f.Add(chain.AppendEnds(nil))
	f.Add(bytes.Repeat([]byte{255}, 24))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := chain
		c.Ends = nil
		if c.UnmarshalEnds(data) != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%x was read, and is not valid: %v", data, err)
		}
		if again := c.AppendEnds(nil); !bytes.Equal(again, data) {
			t.Errorf("%x was read and written as %x", data, again)
		}
	})
}
