// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// fineText returns the text of a prompt of n words with these ranges, computed as the description of the scheme says.
func fineText(s alphabet, seed uint64, block, n int, ranges ...mooncake.HashRange) string {
	var out strings.Builder
	for _, r := range ranges {
		for i := range uint64(r.Count) {
			out.Write(reference(s, seed, (r.First+i)^fineSalt, min(block, n)))
			n -= min(block, n)
		}
	}
	return out.String()
}

// TestRanges: a row with ranges consists of its fine blocks, whose ids are independent of the ids of the trace's blocks. If the sidecar
// gives no size for fine blocks, or the row has no ranges, the prompt is made of the trace's blocks.
func TestRanges(t *testing.T) {
	ranges := []mooncake.HashRange{{First: 0, Count: 2}, {First: 7, Count: 1}, {First: 30, Count: 4}}
	row := lengthRow(110, 1, 1)
	row.HashRanges = ranges
	plain := lengthRow(110, 1, 1)
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"words", Options{Seed: 9, FineBlockSize: 16, Overhead: 5}, anchor + fineText(words, 9, 16, 105, ranges...)},
		{"words of completions", Options{Seed: 9, FineBlockSize: 16, Endpoint: Completions}, anchor + fineText(words, 9, 16, 109, ranges...)},
		{"unknown size of fine blocks", Options{Seed: 9, Overhead: 5}, anchor + text(9, 512, 105, 1)},
	} {
		b := newBuilder(t, tt.o)
		if got := content(t, build(t, b, 0, row, nil).Request); got != tt.want {
			t.Errorf("%s:\n%q, want\n%q", tt.name, got, tt.want)
		}
	}
	// The number of ids is exact, too, and the last one has no comma.
	b := newBuilder(t, Options{Seed: 9, FineBlockSize: 16, Endpoint: Completions, Form: Tokens})
	got := string(read(t, build(t, b, 0, row, nil).Request))
	if want := `"prompt":[` + strings.TrimSuffix(fineText(tokens, 9, 16, 110, ranges...), ",") + `]`; !strings.Contains(got, want) {
		t.Errorf("token ids %q, want %q", got, want)
	}
	// Fine id 5 and hash id 5 are two texts.
	fine := lengthRow(16, 1)
	fine.HashRanges = []mooncake.HashRange{{First: 5, Count: 1}}
	if a, c := string(read(t, build(t, b, 0, fine, nil).Request)), string(read(t, build(t, b, 0, lengthRow(16, 1, 5), nil).Request)); a == c {
		t.Error("fine id 5 and hash id 5 give the same tokens")
	}
	if a, c := read(t, build(t, b, 0, plain, nil).Request), read(t, build(t, newBuilder(t, Options{Seed: 9, Endpoint: Completions, Form: Tokens}), 0, plain, nil).Request); !bytes.Equal(a, c) {
		t.Error("a row without ranges changes with the size of fine blocks")
	}
}

// TestRangesRead: the bytes do not depend on the sizes of the reads, and reading allocates nothing for a block.
func TestRangesRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	row := lengthRow(3000, 1)
	left, next := int64(3000+15)/16, uint64(0)
	for left > 0 {
		n := min(left, 1+rng.Int64N(40))
		next += rng.Uint64N(100)
		row.HashRanges = append(row.HashRanges, mooncake.HashRange{First: next, Count: n})
		next += uint64(n)
		left -= n
	}
	for name, o := range map[string]Options{
		"words":  {Seed: 9, FineBlockSize: 16},
		"tokens": {Seed: 9, FineBlockSize: 16, Endpoint: Completions, Form: Tokens},
	} {
		body := build(t, newBuilder(t, o), 3, row, nil).Request.Body
		want := readBy(t, body.Open(), func() int { return 1 })
		for range 100 {
			if got := readBy(t, body.Open(), func() int { return rng.IntN(500) }); !bytes.Equal(got, want) {
				t.Fatalf("%s: reads of mixed sizes give other bytes", name)
			}
		}
		buf := make([]byte, 4<<10)
		if got := testing.AllocsPerRun(20, func() {
			r := body.Open()
			for {
				if _, err := r.Read(buf); err != nil {
					break
				}
			}
		}); got > 1 {
			t.Errorf("%s: %v allocations to read a body, want the reader's one", name, got)
		}
	}
}

// model is an engine's view of requests: a template of its own, a token a word, and the tokens as it would cache them.
type model struct {
	endpoint Endpoint
	head     int // tokens that the template puts before each message
	tail     int // and after it
}

// tokens returns the tokens of a request's prompt.
func (m model) tokens(t *testing.T, r send.Request) (out []string) {
	t.Helper()
	body := decoded(t, r)
	mark := func(what string, n int) {
		for i := range n {
			out = append(out, fmt.Sprintf("<%s%d>", what, i))
		}
	}
	switch prompt := body["prompt"].(type) {
	case string:
		return append([]string{"<bos>"}, strings.Fields(prompt)...)
	case []any:
		for _, id := range prompt {
			out = append(out, strconv.Itoa(int(id.(float64))))
		}
		return out
	}
	mark("bos", 1)
	for _, raw := range body["messages"].([]any) {
		msg := raw.(map[string]any)
		mark(msg["role"].(string), m.head)
		out = append(out, strings.Fields(msg["content"].(string))...)
		mark("end", m.tail)
	}
	mark("assistant", m.head)
	return out
}

// production makes a trace of conversations: a row continues an earlier row and the reply to it, or begins a conversation, either with a
// part of another row's prompt or with nothing.
type production struct {
	rng  *rand.Rand
	next int
	ids  map[string]uint64
}

func (p *production) text(n int) (out []int) {
	for range n {
		p.next++
		out = append(out, p.next)
	}
	return out
}

// ranges names a prompt's fine blocks as compile does.
func (p *production) ranges(prompt []int, block int) (out []mooncake.HashRange) {
	for i := 0; i < len(prompt); i += block {
		key := fmt.Sprint(prompt[:min(i+block, len(prompt))])
		id, known := p.ids[key]
		if !known {
			id = uint64(len(p.ids))
			p.ids[key] = id
		}
		if n := len(out); n > 0 && id == out[n-1].First+uint64(out[n-1].Count) {
			out[n-1].Count++
			continue
		}
		out = append(out, mooncake.HashRange{First: id, Count: 1})
	}
	return out
}

// said is a row with what production sent and received.
type said struct {
	row           *mooncake.Row
	prompt, reply []int
	last          int // the previous row of the conversation; -1 for its first
}

func (p *production) trace(rows int) (out []said) {
	for i := range rows {
		s := said{last: -1}
		var replies []mooncake.Reply
		if i > 0 && p.rng.IntN(4) > 0 {
			s.last = p.rng.IntN(i)
			before := out[s.last]
			s.prompt = append(append([]int{}, before.prompt...), before.reply...)
			for _, r := range before.row.Replies {
				r.Back += int64(i - s.last)
				replies = append(replies, r)
			}
			replies = append(replies, mooncake.Reply{Back: int64(i - s.last), At: int64(len(before.prompt)), Tokens: int64(len(before.reply))})
		} else if i > 0 && p.rng.IntN(2) == 0 {
			other := out[p.rng.IntN(i)]
			own := len(other.prompt) // only the part before its first reply: a row that contains a reply would have to say so
			if len(other.row.Replies) > 0 {
				own = int(other.row.Replies[0].At)
			}
			s.prompt = append(s.prompt, other.prompt[:p.rng.IntN(own)]...)
		}
		s.prompt = append(s.prompt, p.text(30+p.rng.IntN(120))...)
		s.reply = p.text(1 + p.rng.IntN(60))
		s.row = lengthRow(int64(len(s.prompt)), int64(len(s.reply)))
		s.row.HashRanges, s.row.Replies = p.ranges(s.prompt, 16), replies
		out = append(out, s)
	}
	return out
}

func common[T comparable](a, b []T) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// TestConversations replays conversations on a model of an engine that counts tokens the way real engines do. Every prompt has exactly as
// many tokens as its row says, whatever is carried or invented. Each prompt continues exactly after the earlier prompt and its live reply,
// or the invented one. Two prompts share what their rows share, and at most the last partial block of an earlier prompt in addition.
func TestConversations(t *testing.T) {
	for _, m := range []model{
		{endpoint: Completions, head: -1}, // token ids
		{endpoint: Completions},
		{endpoint: Chat, head: 3, tail: 2},
		{endpoint: Chat, head: 1, tail: 1},
	} {
		t.Run(fmt.Sprint(m), func(t *testing.T) {
			for seed := range uint64(6) {
				conversations(t, m, seed)
			}
		})
	}
}

func conversations(t *testing.T, m model, seed uint64) {
	t.Helper()
	p := &production{rng: rand.New(rand.NewPCG(seed, 7)), ids: make(map[string]uint64)}
	o := Options{Endpoint: m.endpoint, Seed: Seed(seed), FineBlockSize: 16, Model: "m"}
	if m.head < 0 {
		o.Form = Tokens
	} else {
		o.Overhead, o.TurnOverhead = calibrated(t, o, m)
	}
	b := newBuilder(t, o)
	trace := p.trace(40)
	live := make([]Reply, len(trace)) // decided once
	var sent [][]string
	for i, s := range trace {
		replies := make([]Reply, len(s.row.Replies))
		var carried, invented int64
		for j, r := range s.row.Replies {
			replies[j] = live[i-int(r.Back)]
			if replies[j].Carried {
				carried += r.Tokens
			} else {
				invented += r.Tokens
			}
		}
		pr, err := b.BuildLive(int64(i), s.row, Live{Replies: replies})
		if err != nil {
			t.Fatal(err)
		}
		got := m.tokens(t, pr.Request)
		if len(got) != len(s.prompt) || pr.Tokens != int64(len(s.prompt)) {
			t.Fatalf("seed %d, row %d: %d tokens, stated %d, the row has %d", seed, i, len(got), pr.Tokens, len(s.prompt))
		}
		if pr.NoRoom || pr.Carried != carried || pr.Invented != invented {
			t.Fatalf("seed %d, row %d: carried %d, invented %d, no room %v; want %d and %d", seed, i, pr.Carried, pr.Invented, pr.NoRoom, carried, invented)
		}
		if s.last >= 0 {
			before := append(append([]string{}, sent[s.last]...), spoken(live[s.last])...)
			if n := common(before, got); n != len(before) {
				t.Fatalf("seed %d, row %d: continues after %d of the %d tokens of row %d and its reply (carried %v)", seed, i, n, len(before), s.last, live[s.last].Carried)
			}
		}
		over := 2 + 2 // what every prompt starts with, and words that are equal by chance, 1 in 512
		if m.endpoint == Chat {
			over += 2*(m.head+m.tail) + m.head
		}
		for k := range i {
			want, shared := common(trace[k].prompt, s.prompt), common(sent[k], got)
			if shared < want/16*16-over {
				t.Fatalf("seed %d: the prompts of rows %d and %d share %d tokens, the rows %d", seed, k, i, shared, want)
			}
			if shared > want+over {
				// Only equal live replies could add to that, and each reply has words of its own.
				t.Fatalf("seed %d: the prompts of rows %d and %d share %d tokens, the rows only %d", seed, k, i, shared, want)
			}
		}
		sent = append(sent, got)
		live[i] = Reply{Before: TailOf(s.row, 512, 16)}
		if p.rng.IntN(3) > 0 {
			live[i].Carried = true
			for k := range s.reply {
				live[i].Tokens = append(live[i].Tokens, uint32(50000+i*100+k))
				live[i].Text += fmt.Sprintf(" r%d\"%d", i, k)
			}
			if m.head < 0 {
				live[i].Text = ""
			}
		}
	}
}

// spoken returns the tokens of a live reply.
func spoken(r Reply) (out []string) {
	if !r.Carried {
		return nil
	}
	if r.Text != "" {
		return strings.Fields(r.Text)
	}
	for _, id := range r.Tokens {
		out = append(out, strconv.Itoa(int(id)))
	}
	return out
}

// calibrated measures a model as a replay does.
func calibrated(t *testing.T, o Options, m model) (overhead, turn int) {
	t.Helper()
	var counted []int64
	for _, r := range newBuilder(t, o).Calibration("m", true) {
		counted = append(counted, int64(len(m.tokens(t, r))))
	}
	overhead, err := Solve(counted[0], counted[1])
	if err != nil {
		t.Fatal(err)
	}
	if m.endpoint == Chat {
		if turn, err = SolveTurn(counted[0], counted[2]); err != nil {
			t.Fatal(err)
		}
	}
	return overhead, turn
}

// TestNoRoom: if a message has no room for a word, or a reply is at an impossible position, the whole row is one message of invented words,
// of the exact length, and flagged.
func TestNoRoom(t *testing.T) {
	m := model{endpoint: Chat, head: 3, tail: 2}
	o := Options{FineBlockSize: 16}
	o.Overhead, o.TurnOverhead = calibrated(t, o, m)
	b := newBuilder(t, o)
	for _, tt := range []struct {
		length int64
		room   bool
	}{{100 + 20 + 11, false}, {100 + 20 + 12, true}} { // the template's 10, the anchor, a word
		row := lengthRow(tt.length, 1)
		row.HashRanges = []mooncake.HashRange{{First: 0, Count: 9}}
		row.Replies = []mooncake.Reply{{Back: 1, At: 100, Tokens: 20}}
		p, err := b.BuildLive(1, row, Live{Replies: []Reply{{Carried: true, Text: strings.Repeat("so ", 20)}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(m.tokens(t, p.Request)); int64(got) != tt.length || p.NoRoom == tt.room || tt.room != (p.Carried == 20) || tt.room == (p.Invented == 20) {
			t.Errorf("length %d: %d tokens, no room %v, carried %d, invented %d", tt.length, got, p.NoRoom, p.Carried, p.Invented)
		}
	}
	for _, broken := range [][]mooncake.Reply{{{Back: 1, At: 0, Tokens: 5}}, {{Back: 1, At: 50, Tokens: 60}}, {{Back: 1, At: 50, Tokens: 5}, {Back: 1, At: 52, Tokens: 5}}, {{Back: 1, At: 50, Tokens: 0}}} {
		row := lengthRow(100, 1)
		row.Replies = broken
		if p, err := b.BuildLive(1, row, Live{Replies: make([]Reply, len(broken))}); err != nil || !p.NoRoom {
			t.Errorf("%v: no room %v, %v", broken, p.NoRoom, err)
		}
	}
	if _, err := b.BuildLive(1, lengthRow(100, 1), Live{Replies: make([]Reply, 1)}); err == nil {
		t.Error("a reply for a row that has none was taken")
	}
}

// TestReturnTokenIDs: token ids are requested if a later row needs them and the engine can return them.
func TestReturnTokenIDs(t *testing.T) {
	row := lengthRow(20, 1, 1)
	for _, tt := range []struct {
		o    Options
		keep bool
		want bool
	}{
		{Options{Endpoint: Completions, Form: Tokens}, true, true},
		{Options{Endpoint: Completions, Form: Tokens}, false, false},
		{Options{Endpoint: Completions, Form: Tokens, Profile: LlamaCPP}, true, false},
		{Options{Endpoint: Completions}, true, false},
		{Options{}, true, false},
	} {
		p, err := newBuilder(t, tt.o).BuildLive(0, row, Live{Keep: tt.keep})
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(p.Request.Body.Open())
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Contains(body, []byte(`"return_token_ids":true`)); got != tt.want || p.Request.KeepReply != tt.keep {
			t.Errorf("%+v, keep %v: asked for token ids %v, kept %v", tt.o, tt.keep, got, p.Request.KeepReply)
		}
	}
}

func BenchmarkRanges(b *testing.B) {
	row := lengthRow(12_000, 1)
	row.HashRanges = []mooncake.HashRange{{First: 0, Count: 300}, {First: 900, Count: 450}}
	body := build(b, newBuilder(b, Options{FineBlockSize: 16}), 0, row, nil).Request.Body
	buf := make([]byte, 32<<10)
	b.SetBytes(body.Size)
	b.ReportAllocs()
	for b.Loop() {
		r := body.Open()
		for {
			if _, err := r.Read(buf); err != nil {
				break
			}
		}
	}
}
