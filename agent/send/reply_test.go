// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReplyTokens: the token ids of a reply are kept if they were requested and the server gave them for every chunk that contains a
// token. They are never kept in part.
func TestReplyTokens(t *testing.T) {
	const (
		first  = `{"choices":[{"index":0,"text":"","token_ids":[200],"prompt_token_ids":[1,2,3]}]}` // half a character
		second = `{"choices":[{"index":0,"text":"A ","token_ids":[ 7 , 4294967295]}]}`
		last   = `{"choices":[{"index":0,"text":"","token_ids":null,"finish_reason":"length"}]}`
		bare   = `{"choices":[{"index":0,"text":"B"}]}`
		wrong  = `{"choices":[{"index":0,"text":"B","token_ids":[1,-2]}]}`
		large  = `{"choices":[{"index":0,"text":"B","token_ids":[4294967296]}]}`
		other  = `{"choices":[{"index":1,"text":"C","token_ids":[9],"finish_reason":"length"}]}`
	)
	for _, tt := range []struct {
		name   string
		reply  string
		whole  bool
		forget bool
		want   []uint32
	}{
		{"a stream", sse(first, second, last, usage, done), false, false, []uint32{200, 7, 4294967295}},
		{"a whole reply", answer("200 OK", "application/json", `{"choices":[{"index":0,"text":"A","token_ids":[5,6],"finish_reason":"length"}]}`), true, false, []uint32{5, 6}},
		{"the token ids of another choice are left out", sse(first, other, second, last, done), false, false, []uint32{200, 7, 4294967295}},
		{"a chunk without token ids", sse(first, bare, last, done), false, false, nil},
		{"an invalid id", sse(first, wrong, last, done), false, false, nil},
		{"an id that is too large", sse(first, large, last, done), false, false, nil},
		{"no token ids", sse(bare, last, done), false, false, nil},
		{"the reply was not to be kept", sse(first, second, last, done), false, true, nil},
	} {
		req := &Request{Path: "/v1/completions", Stream: !tt.whole, KeepReply: !tt.forget}
		x := once(t, req, Config{}, tt.reply, false)
		if x.Err != nil {
			t.Errorf("%s: %v", tt.name, x.Err)
		}
		if diff := cmp.Diff(tt.want, x.ReplyTokens); diff != "" {
			t.Errorf("%s: token ids (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestLongToolCall: a tool call in four times as many pieces needs about four times as much memory, not sixteen times.
func TestLongToolCall(t *testing.T) {
	allocated := func(pieces int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var r reply
		for range pieces {
			if err := r.addCalls([]byte(`[{"index": 0, "function": {"arguments": "abcd"}}]`)); err != nil {
				t.Fatal(err)
			}
		}
		var x Exchange
		if r.copyTo(&x); len(x.ToolCalls) < 4*pieces {
			t.Errorf("%d pieces make a call of %d bytes", pieces, len(x.ToolCalls))
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if short, long := allocated(4000), allocated(16_000); long > 8*short {
		t.Errorf("4,000 pieces need %d bytes, 16,000 need %d", short, long)
	}
}
