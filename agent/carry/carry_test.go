// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/mooncake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rowOf returns a row of 100 tokens that contains replies of 10 tokens each; back says how many rows before this one each reply's row is.
func rowOf(back ...int64) *mooncake.Row {
	r := &mooncake.Row{InputLength: mooncake.Some[int64](100), HashIDs: []uint64{7}}
	for i, b := range back {
		r.Replies = append(r.Replies, mooncake.Reply{Back: b, At: int64(5 + 15*i), Tokens: 10})
	}
	return r
}

func served(text string, tokens int) Ended {
	e := Ended{Served: true, Model: "m", Text: text, Count: 10}
	for i := range tokens {
		e.Tokens = append(e.Tokens, uint32(i))
	}
	return e
}

// words counts each word as a token.
func words(_ context.Context, _, text string) (int64, []uint32, error) {
	n := len(strings.Fields(text))
	return int64(n), make([]uint32, n), nil
}

func ten(word string) string { return strings.Repeat(word+" ", 10) }

// TestReasons: what replaces a reply, and why.
func TestReasons(t *testing.T) {
	tail := prompt.Tail{Length: 100, ID: 7, Known: true}
	for _, tt := range []struct {
		name   string
		o      Options
		before func(*Store)
		want   string
		reply  prompt.Reply
	}{
		{"text that is checked", Options{Check: words}, func(s *Store) { s.End(0, served(ten("a"), 0)) }, "", prompt.Reply{Carried: true, Text: ten("a"), Before: tail}},
		{"text with another number of tokens", Options{Check: words}, func(s *Store) { s.End(0, served("a b", 0)) }, Text, prompt.Reply{Before: tail}},
		{"text that cannot be checked", Options{}, func(s *Store) { s.End(0, served(ten("a"), 0)) }, Unchecked, prompt.Reply{Before: tail}},
		{"text that is carried always, unchecked", Options{Mode: Always}, func(s *Store) { s.End(0, served(ten("a"), 0)) }, "", prompt.Reply{Carried: true, Text: ten("a"), Before: tail}},
		{"a check that fails", Options{Check: func(context.Context, string, string) (int64, []uint32, error) { return 0, nil, errors.New("no") }}, func(s *Store) { s.End(0, served(ten("a"), 0)) }, Unchecked, prompt.Reply{Before: tail}},
		{"token ids", Options{TokenIDs: true}, func(s *Store) { s.End(0, served("x", 10)) }, "", prompt.Reply{Carried: true, Tokens: served("", 10).Tokens, Before: tail}},
		{"token ids from the check", Options{TokenIDs: true, Check: words}, func(s *Store) { s.End(0, served(ten("a"), 0)) }, "", prompt.Reply{Carried: true, Tokens: make([]uint32, 10), Before: tail}},
		{"token ids, but the check counts another number", Options{TokenIDs: true, Check: words}, func(s *Store) { s.End(0, served("a", 0)) }, Text, prompt.Reply{Before: tail}},
		{"no token ids", Options{TokenIDs: true, Mode: Always}, func(s *Store) { s.End(0, served(ten("a"), 0)) }, Unchecked, prompt.Reply{Before: tail}},
		{"another length", Options{Mode: Always}, func(s *Store) { e := served(ten("a"), 0); e.Count = 9; s.End(0, e) }, Length, prompt.Reply{Before: tail}},
		{"an unknown length", Options{Mode: Always}, func(s *Store) { e := served(ten("a"), 0); e.Count = -1; s.End(0, e) }, Length, prompt.Reply{Before: tail}},
		{"no text", Options{Mode: Always}, func(s *Store) { s.End(0, served("", 0)) }, Unchecked, prompt.Reply{Before: tail}},
		{"not complete", Options{Mode: Always}, func(*Store) {}, Late, prompt.Reply{Before: tail}},
		{"failed", Options{Mode: Always}, func(s *Store) { s.End(0, Ended{}) }, Failed, prompt.Reply{Before: tail}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := tt.o
				o.BlockSize = 512
				s := New(o)
				defer s.Close()
				s.Need(1, rowOf(1).Replies)
				if !s.Begin(0, rowOf()) {
					t.Fatal("the reply to a row that is needed is not kept")
				}
				tt.before(s)
				synctest.Wait()
				replies, why := s.Resolve(1, rowOf(1))
				if diff := cmp.Diff([]prompt.Reply{tt.reply}, replies); diff != "" || why[0] != tt.want {
					t.Errorf("why %q, want %q; (-want +got):\n%s", why[0], tt.want, diff)
				}
			})
		})
	}
}

// TestDecidedOnce: the first row that needs a reply decides how it is inserted, and all later rows do the same, even if the reply has
// arrived since.
func TestDecidedOnce(t *testing.T) {
	s := New(Options{Mode: Always, BlockSize: 512})
	defer s.Close()
	s.Begin(0, rowOf())
	s.Begin(1, rowOf())
	s.End(1, served(ten("b"), 0))
	_, first := s.Resolve(2, rowOf(2, 1))
	s.End(0, served(ten("a"), 0)) // too late
	replies, second := s.Resolve(3, rowOf(3, 2))
	if diff := cmp.Diff([]string{Late, ""}, first); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(first, second); diff != "" || replies[0].Carried || replies[1].Text != ten("b") {
		t.Errorf("a later row does otherwise: %v (-first +second):\n%s", replies, diff)
	}
	// A row that is sent before the row whose reply it needs decides, too.
	if _, why := s.Resolve(5, rowOf(1)); why[0] != NotSent {
		t.Errorf("a row that has not begun: %q", why[0])
	}
	if s.Begin(4, rowOf()) {
		t.Error("the reply is kept although words have replaced it already")
	}
	if _, why := s.Resolve(6, rowOf(2)); why[0] != NotSent {
		t.Errorf("the next row that needs the reply: %q", why[0])
	}
	// A row that states another length of the reply gets invented words of that length.
	odd := rowOf(2)
	odd.Replies[0].Tokens = 11
	if replies, why := s.Resolve(3, odd); why[0] != Length || replies[0].Carried {
		t.Errorf("another length: %q, %v", why[0], replies)
	}
}

// TestWhatIsKept: if the whole trace is known, only the replies that are needed are kept. Otherwise all are, and above the bound those
// that were used longest ago are dropped first.
func TestWhatIsKept(t *testing.T) {
	s := New(Options{Mode: Always, Whole: true})
	defer s.Close()
	s.Need(7, rowOf(2).Replies)
	if !s.Needed() || s.Begin(4, rowOf()) || !s.Begin(5, rowOf()) {
		t.Error("want the reply to row 5 to be kept, and none to row 4")
	}
	s.Skip(5, rowOf()) // row 5 has begun: Skip changes nothing
	if _, why := s.Resolve(7, rowOf(2)); why[0] != Late {
		t.Errorf("row 5: %q", why[0])
	}

	s = New(Options{Mode: Always, Bytes: 10 * (entryBytes + 1000)})
	defer s.Close()
	for i := range int64(100) {
		if !s.Begin(i, rowOf()) {
			t.Fatalf("row %d is not kept", i)
		}
		e := served(strings.Repeat("x", 1000), 0)
		s.End(i, e)
		if i >= 20 {
			s.Resolve(i+1, rowOf(i-20+1)) // row 20 is looked up repeatedly
		}
		if s.bytes > s.opt.Bytes {
			t.Fatalf("%d bytes are kept, the bound is %d", s.bytes, s.opt.Bytes)
		}
	}
	if _, why := s.Resolve(100, rowOf(80)); why[0] != "" {
		t.Errorf("row 20: %q", why[0])
	}
	if _, why := s.Resolve(100, rowOf(1)); why[0] != "" {
		t.Errorf("row 99: %q", why[0])
	}
	if _, why := s.Resolve(100, rowOf(95)); why[0] != Evicted {
		t.Errorf("row 5: %q", why[0])
	}
	s = New(Options{Elsewhere: func(at int64) bool { return at == 9 }})
	defer s.Close()
	for back, want := range map[int64]string{1: Shard, 2: NotSent} {
		if _, why := s.Resolve(10, rowOf(back)); why[0] != want {
			t.Errorf("row %d: %q, want %q", 10-back, why[0], want)
		}
	}
}

// TestChecksThatWaitAreBounded: while an engine does not answer, the store keeps at most its bound of bytes, and the few replies that are
// being checked.
func TestChecksThatWaitAreBounded(t *testing.T) {
	stuck := func(ctx context.Context, _, _ string) (int64, []uint32, error) {
		<-ctx.Done()
		return 0, nil, ctx.Err()
	}
	s := New(Options{Check: stuck, Bytes: 10 * (entryBytes + 1000)})
	for i := range int64(1000) {
		s.Need(i+1, rowOf(1).Replies)
		s.Begin(i, rowOf())
		s.End(i, served(strings.Repeat("x", 1000), 0))
		s.mu.Lock()
		kept, waiting := s.bytes, len(s.queue)
		s.mu.Unlock()
		if most := s.opt.Bytes + checkers*(entryBytes+1000); kept > most || waiting > 100 {
			t.Fatalf("%d bytes are kept, the bound is %d; %d checks wait", kept, most, waiting)
		}
	}
	s.Close()
}

// TestNamedRowsAreBounded: rows that are named but never begin use bounded memory.
func TestNamedRowsAreBounded(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	for i := range int64(3 * maxNamed) {
		s.Need(i+1, rowOf(1).Replies)
	}
	if n := len(s.named[0]) + len(s.named[1]); n > 2*maxNamed {
		t.Errorf("%d rows are remembered", n)
	}
}

// TestStoreAtOnce: many rows at once, under the race detector.
func TestStoreAtOnce(t *testing.T) {
	s := New(Options{Check: words, Bytes: 20 * (entryBytes + 100), BlockSize: 512})
	var all sync.WaitGroup
	for g := range int64(8) {
		all.Go(func() {
			for i := g; i < 800; i += 8 {
				s.Need(i+3, rowOf(3).Replies)
				if s.Begin(i, rowOf()) {
					s.End(i, served(ten(fmt.Sprint(i)), 0))
				}
				s.Resolve(i+3, rowOf(3))
			}
		})
	}
	all.Wait()
	s.checks.Wait()
	s.Close()
	if s.busy != 0 || s.bytes > s.opt.Bytes {
		t.Errorf("%d checks under way, %d bytes", s.busy, s.bytes)
	}
	var none *Store
	if replies, why := none.Resolve(1, rowOf(1)); replies != nil || why != nil || none.Begin(1, rowOf()) {
		t.Error("a nil store carries")
	}
	none.End(1, Ended{})
	none.Skip(1, rowOf())
	none.Close()
}
