// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// manyTalks returns a trace with conversations of one to three turns, with different pauses, under one system prompt.
func manyTalks() string {
	var b strings.Builder
	id := 1
	for i := range 300 {
		talk := i / 3
		turn, first := i%3, float64(100*talk)
		switch {
		case talk%5 == 0 && turn > 0:
			continue // of one turn
		case talk%7 == 0 && turn > 1:
			continue // of two
		}
		session := fmt.Sprintf(`, "session_id": "s%d"`, talk)
		if talk%5 == 0 {
			session = ""
		}
		fmt.Fprintf(&b, `{"timestamp": %g, "input_length": %d, "output_length": %d, "hash_ids": [0, %d]%s}`+"\n", first+float64(turn*(30+talk)), 520+talk, turn+1, id, session)
		id++
	}
	return sortedByTime(b.String())
}

// sortedByTime sorts lines of a trace by their timestamps.
func sortedByTime(lines string) string {
	list := strings.Split(strings.TrimSpace(lines), "\n")
	at := func(line string) (ms float64) {
		_, _ = fmt.Sscanf(line, `{"timestamp": %g`, &ms)
		return ms
	}
	slices.SortStableFunc(list, func(a, b string) int {
		switch x, y := at(a), at(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return strings.Join(list, "\n") + "\n"
}

// drawnTalk has what a new order must not change in a conversation: lengths, and times since its beginning. The length of its prompt
// identifies it.
type drawnTalk struct {
	Begin float64
	Input int64
	Turns string
}

// TestDraw: at each time at which a conversation began, one of them begins, with its own pauses, lengths and shared blocks.
func TestDraw(t *testing.T) {
	talksOf := func(c Config) (list []drawnTalk, sessions int) {
		rows, _, _ := transformed(t, c, source([]byte(manyTalks()), 0))
		begin, of, names := map[string]int{}, []drawnTalk{}, map[string]bool{}
		before := 0.
		blocks := map[int64]uint64{} // the last block of a prompt, by its length and turn
		for i, r := range rows {
			if r.Timestamp.V < before {
				t.Fatalf("%s: row %d is before the one before it", c.Draw, i+1)
			}
			before = r.Timestamp.V
			name := r.SessionID
			if name == "" {
				name = fmt.Sprint("row ", i)
			} else {
				names[name] = true
			}
			at, known := begin[name]
			if !known {
				at = len(of)
				begin[name] = at
				of = append(of, drawnTalk{Begin: r.Timestamp.V, Input: r.InputLength.V})
			}
			of[at].Turns += fmt.Sprintf("%g:%d ", r.Timestamp.V-of[at].Begin, r.OutputLength.V)
			key := r.InputLength.V<<8 | r.OutputLength.V
			if id, again := blocks[key]; again && id != r.HashIDs[1] {
				t.Errorf("%s: row %d has a different prompt than its conversation had before", c.Draw, i+1)
			}
			blocks[key] = r.HashIDs[1]
		}
		return of, len(names)
	}
	plain, sessions := talksOf(Config{})
	begins := func(of []drawnTalk) (all []float64) {
		for _, d := range of {
			all = append(all, d.Begin)
		}
		return all
	}
	turns := map[int64]string{}
	for _, d := range plain {
		turns[d.Input] = d.Turns
	}
	for _, how := range []Draw{DrawShuffle, DrawRandom} {
		got, named := talksOf(Config{Draw: how, Seed: 3})
		if diff := cmp.Diff(begins(plain), begins(got)); diff != "" {
			t.Errorf("%s: conversations begin at other times (-want +got):\n%s", how, diff)
		}
		came := map[int64]int{}
		moved := 0
		for i, d := range got {
			if came[d.Input]++; d.Turns != turns[d.Input] {
				t.Errorf("%s: conversation %d has the turns %s, not %s", how, i, d.Turns, turns[d.Input])
			}
			if d.Input != plain[i].Input {
				moved++
			}
		}
		if moved < len(plain)/2 {
			t.Errorf("%s: %d of %d conversations are elsewhere", how, moved, len(plain))
		}
		most := slices.Max(slices.Collect(maps.Values(came)))
		if how == DrawShuffle && (most != 1 || len(came) != len(plain) || named != sessions) || how == DrawRandom && (most < 2 || len(came) >= len(plain)) {
			t.Errorf("%s: %d of %d conversations, one of them %d times, %d sessions", how, len(came), len(plain), most, named)
		}
		if again, _ := talksOf(Config{Draw: how, Seed: 3}); cmp.Diff(got, again) != "" {
			t.Errorf("%s: the same seed gives another order", how)
		}
		if other, _ := talksOf(Config{Draw: how, Seed: 4}); cmp.Diff(got, other) == "" {
			t.Errorf("%s: another seed gives the same order", how)
		}
		// Later steps see the rows in their new order.
		if rows, _, _ := transformed(t, Config{Draw: how, Seed: 3, Roots: 2, PrefixScale: 2}, source([]byte(manyTalks()), 0)); len(begins(plain)) == 0 || len(rows) == 0 || rows[0].InputLength.V <= got[0].Input {
			t.Errorf("%s: %d rows with other steps after it", how, len(rows))
		}
	}
}

// TestDrawLinksReplies: in a conversation that is drawn several times, and also if it is scaled or spread afterwards, each turn has the reply to
// the turn before of its own session, although the others take place at the same time.
func TestDrawLinksReplies(t *testing.T) {
	var b strings.Builder
	for talk := range 20 {
		at, id := 10*talk, talk
		fmt.Fprintf(&b, `{"timestamp": %d, "input_length": 16, "output_length": 9, "hash_ids": [%d], "session_id": "s%d"}`+"\n", at, id, talk)
		fmt.Fprintf(&b, `{"timestamp": %d, "input_length": 48, "output_length": 9, "hash_ids": [%d], "replies": [[REPLY, 16, 9]], "session_id": "s%d"}`+"\n", at+1000, 20+talk, talk)
	}
	lines := strings.Split(strings.TrimSpace(sortedByTime(b.String())), "\n") // the 20 first turns, then the 20 second ones
	data := strings.ReplaceAll(strings.Join(lines, "\n"), "REPLY", "20")
	for _, c := range []Config{{Draw: DrawRandom, Seed: 3}, {Draw: DrawRandom, Seed: 3, Roots: 2}} {
		rows, _, _ := transformed(t, c, source([]byte(data), 0))
		linked := 0
		for i, r := range rows {
			for _, reply := range r.Replies {
				linked++
				if of := rows[int64(i)-reply.Back]; of.SessionID != r.SessionID {
					t.Errorf("%+v: row %d, of session %s, has a reply to session %s", c, i, r.SessionID, of.SessionID)
				}
			}
		}
		if linked != 20 {
			t.Errorf("%+v: %d of 20 replies are left", c, linked)
		}
	}
}

// TestConversationNames: a session whose name begins with a slash is a conversation by itself.
func TestConversationNames(t *testing.T) {
	for session, want := range map[string]string{"": "", "a": "a", "a/b": "a", "a/b/c": "a", "/a": "/a", "/a/b": "/a/b"} {
		if got := conversation(session); got != want {
			t.Errorf("%q belongs to %q, want %q", session, got, want)
		}
	}
	data := ""
	for i, session := range []string{"/x", "", "", "/y"} {
		data += fmt.Sprintf(`{"timestamp": %d, "input_length": 5, "output_length": 1, "session_id": %q}`+"\n", i, session)
	}
	if rows, _, _ := transformed(t, Config{Conversations: 2}, source([]byte(data), 0)); len(rows) != 2 {
		t.Errorf("%d rows of the first two conversations", len(rows))
	}
}
