// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// cache is a prefix cache that forgets nothing.
type cache map[uint64]bool

// serve returns how many leading blocks are in the cache, and adds them all.
func (c cache) serve(ids []uint64) (shared int) {
	for shared < len(ids) && c[ids[shared]] {
		shared++
	}
	for _, id := range ids {
		c[id] = true
	}
	return shared
}

// accuracy is the difference between blocks by text and blocks by tokens.
type accuracy struct {
	requests, blocks       int
	same, sum, worst       int // requests with the same number of shared blocks; sum and maximum of the differences
	exactShared, textShare int
}

func (a *accuracy) add(want, got, blocks int) {
	diff := max(want-got, got-want)
	if diff == 0 {
		a.same++
	}
	a.requests++
	a.blocks += blocks
	a.sum += diff
	a.worst = max(a.worst, diff)
	a.exactShared += want
	a.textShare += got
}

func (a *accuracy) samePercent() float64 { return 100 * float64(a.same) / float64(a.requests) }

// hitError is the error of the hit rate of an infinite cache, in points.
func (a *accuracy) hitError() float64 {
	return 100 * float64(a.textShare-a.exactShared) / float64(a.blocks)
}

func (a *accuracy) String() string {
	return fmt.Sprintf("%d requests, same count %.2f %%, mean error %.3f, worst %d, hit rate %.2f %% %+.2f",
		a.requests, a.samePercent(), float64(a.sum)/float64(a.requests), a.worst, 100*float64(a.exactShared)/float64(a.blocks), a.hitError())
}

// TestTextIdentity compiles conversations in which every token is known, and compares what their rows share with what exact blocks of 512
// tokens share. The bounds come from measurements on five real vocabularies.
func TestTextIdentity(t *testing.T) {
	otherInput(t)
	h := newHasher(t, blockhash.TextDomain)
	exact := newHasher(t, func(blockhash.Key) string { return blockhash.Domain("tokens", "test") })
	hashed := func(messages [][2]string) journal.Prompt {
		h.Reset()
		for _, m := range messages {
			h.Role(m[0])
			h.Text(m[1])
		}
		c := h.Chain()
		c.Cells, c.Ends = slices.Clone(c.Cells), slices.Clone(c.Ends)
		return journal.Prompt{Identity: journal.Text, Domain: 9, Key: 8, Chain: c}
	}
	model := func(s string) func(*journal.Inference) { return func(r *journal.Inference) { r.Model = name(t, s) } }
	seeds := repeated(uint64(12), 2)
	for seed := range seeds {
		chats := conversations(seed+1, 120)
		// Combinations of text and usage in telemetry.
		var one, two, logged, cut []journal.Record
		for i, c := range chats {
			trace, ms := uint64(i+1), int64(i)
			usage := tokens(int64(len(c.tokens)), 10)
			whole := hashed(c.messages)
			text := func(r *journal.Inference) { r.Prompt = whole }
			none := func(r *journal.Inference) { r.Identity = journal.None }
			one = append(one, call(trace, 1, 0, ms, model("m"), usage, text))
			two = append(
				two, call(trace, 2, 0, ms, noTokens, model("provider/m"), text), link(trace, 3, 2, 0),
				call(trace, 1, 3, ms, model("m"), usage, none),
			)
			logged = append(logged, call(trace, 1, 0, ms, model("m"), usage, none), &journal.Content{Span: ref(trace, 2), Parent: sid(1), Start: at(ms), Prompt: whole})
			if i%20 != 0 {
				cut = append(cut, call(trace, 1, 0, ms, model("m"), usage, text))
				continue
			}
			at1 := len(c.messages) / 2
			cut = append(
				cut, call(trace, 1, 0, ms, model("m"), usage, none),
				&journal.Content{Span: ref(trace, 3), Parent: sid(1), Start: at(ms), Prompt: hashed(c.messages[:at1])}, &journal.Content{Span: ref(trace, 2), Parent: sid(1), Start: at(ms) + 9, Prompt: hashed(c.messages[at1:])},
			)
		}
		var first memory
		for i, way := range []struct {
			name    string
			records []journal.Record
		}{
			{"text and usage on one span", one},
			{"text on the client's span, usage on the gateway's", two},
			{"text in log records", logged},
			{"one of twenty prompts in two parts", cut},
		} {
			if i > 0 && seed >= 3 {
				break // the same every time
			}
			m, res := compileBytes(t, Options{}, journalOf(way.records...))
			rows := m.rows(t, production)
			var a accuracy
			over := 0
			byTokens, byText := cache{}, cache{}
			for i, c := range chats {
				ids := exact.Tokens(nil, c.tokens, mooncake.BlockSize)
				if len(ids) != len(rows[i].HashIDs) && rows[i].HashIDs != nil { // nil if no block of a beginning is known
					t.Fatalf("%d blocks by tokens and %d by text", len(ids), len(rows[i].HashIDs))
				}
				want, got := byTokens.serve(ids), byText.serve(rows[i].HashIDs)
				a.add(want, got, len(ids))
				over = max(over, got-want)
			}
			t.Logf("seed %d, %s: %s", seed+1, way.name, &a)
			switch {
			case first == nil:
				first = m
				equal(t, way.name+": identity", map[string]int64{"text": int64(len(chats))}, res.Traces[0].Meta.Identity)
				if a.samePercent() < 97 || a.worst > 1 || math.Abs(a.hitError()) >= 0.2 {
					t.Errorf("seed %d: %s; want the same count in 97 %%, no more than 1 off, and the hit rate within 0.2 points", seed+1, &a)
				}
			case way.name != "one of twenty prompts in two parts":
				equal(t, way.name, string(first[production]), string(m[production]))
			case over > 1 || a.samePercent() < 80:
				t.Errorf("seed %d, %s: %s, %d blocks too many; want no sharing that is not there, and the same count in 80 %%",
					seed+1, way.name, &a, over)
			default:
				equal(t, way.name+": beginnings", int64(len(chats)+19)/20, dropped(res.Traces[0].Meta.Dropped, lostRest))
				equal(t, way.name+": parts", int64(len(chats)+19)/20, dropped(res.Traces[0].Meta.Dropped, lostPart))
			}
		}
	}
}

func newHasher(t testing.TB, domain func(blockhash.Key) string) *blockhash.Hasher {
	t.Helper()
	key, err := blockhash.NewKey(bytes.Repeat([]byte{3}, blockhash.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	h, err := blockhash.NewHasher(key, domain(key))
	if err != nil {
		t.Fatal(err)
	}
	return h
}
