// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

// AIPerf's dag_jsonl is written by hand. Turns of conversations start other conversations, which continue the conversation so far (forks)
// or begin a new one (spawns), and wait for them. This file converts it to a graph of rows: each turn is a row that waits for the turn
// before it and for the conversations that it joins; a conversation's first turn waits for the turn that started the conversation. A row
// with new messages continues the conversation of that row of its session for which it waits, so a fork has the session of the turn that
// started it.

import (
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/moonloop/moonloop/mooncake"
)

// maxDAGRows is the maximum number of rows of a file, because conversations that start each other several times quickly become many rows.
const maxDAGRows = 100_000

var aiperfDAG = spec{
	Format: "aiperf-dag", about: "AIPerf's dag_jsonl: conversations that branch; needs --prompts keep", text: true, verbatim: true, delta: true,
	decode: func(d *decoder, r *record) {
		c := &talk{id: r.name("session_id"), line: d.line}
		r.want(c.id != "", "session_id", "")
		c.whole = r.name("context_mode") == "message_array_with_responses"
		c.before = r.names("pre_session_spawns")
		if r.yes("orchestrator") {
			c.rounds = dagRounds(r)
		} else {
			r.objects(func(t *record) { c.turns = append(c.turns, dagTurn(t, c)) }, "turns")
			r.want(len(c.turns) > 0, "turns", "a conversation has at least one turn; one without turns needs \"orchestrator\": true")
		}
		if r.err != nil {
			return
		}
		r.unread(d.lost.value)
		if d.talks == nil {
			d.talks = map[string]*talk{}
		}
		if d.talks[c.id] != nil {
			r.fail("session_id", "", "is that of line "+strconv.FormatInt(d.talks[c.id].line, 10), "give each conversation a name of its own")
			return
		}
		d.talks[c.id], d.order = c, append(d.order, c)
	},
	end: func(d *decoder) *mooncake.RowError { return (&branching{decoder: d, times: map[string]int{}}).run() },
}

// talk is a conversation.
type talk struct {
	id     string
	line   int64
	whole  bool     // each turn has the whole conversation
	before []string // conversations that start together with it
	turns  []*talkTurn
	rounds []round // of a conversation without turns, which only starts others
	open   bool    // it is being expanded: starting it again would be a cycle
	forked int64   // line of the conversation of which it is a fork
	child  bool    // another conversation starts it
}

// talkTurn is a turn, and the conversations that it starts.
type talkTurn struct {
	row           *mooncake.Row
	forks, spawns []start
	terminal      bool // it has a fork that ends the conversation
}

// start is a conversation that a turn starts, and the index of the turn that waits for its end; 0: none does.
type start struct {
	id   string
	join int
}

// round is a set of conversations that start together, a think time after those of the round before have ended.
type round struct {
	ids   []string
	think mooncake.Opt[float64] // milliseconds
}

func dagTurn(t *record, c *talk) *talkTurn {
	turn, k := &talkTurn{row: &mooncake.Row{
		Messages: t.raw("messages"), Model: t.name("model"), OutputLength: t.count("max_tokens"), Tools: t.raw("tools"), Extra: t.raw("extra"),
		Delay: t.millis(time.Millisecond, "delay"),
	}}, len(c.turns)
	t.want(turn.row.Messages != nil, "messages", "")
	t.either(func(id string) {
		turn.forks, turn.terminal = append(turn.forks, start{id, 0}), true
	}, func(f *record) {
		id := f.name("child")
		f.want(id != "", "child", "")
		turn.terminal = turn.terminal || !f.yes("background")
		turn.forks = append(turn.forks, start{id, 0})
	}, "forks")
	t.either(func(id string) {
		turn.spawns = append(turn.spawns, start{id, k + 1})
	}, func(s *record) {
		join := int(s.integer("join_at").Or(int64(k + 1)))
		if join <= k {
			s.fail("join_at", "", "must be a later turn, from "+strconv.Itoa(k+1)+" on", "")
		}
		for _, id := range s.names("children") {
			turn.spawns = append(turn.spawns, start{id, join})
		}
	}, "spawns")
	return turn
}

// dagRounds reads the conversations that a conversation without turns starts.
func dagRounds(r *record) (all []round) {
	think, spawns := r.millis(time.Millisecond, "think_time_ms"), r.names("spawns")
	if f := r.find("rounds"); f != nil && f.value().Kind() == '[' {
		r.objects(func(o *record) {
			one := round{o.names("spawns"), o.millis(time.Millisecond, "think_time_ms")}
			if !one.think.Set {
				one.think = think
			}
			o.want(len(one.ids) > 0, "spawns", "")
			all = append(all, one)
		}, "rounds")
		return all
	}
	r.want(len(spawns) > 0, "spawns", "a conversation without turns starts others")
	n := r.integer("rounds").Or(1)
	if n < 1 || n > maxDAGRows {
		r.fail("rounds", strconv.FormatInt(n, 10), "must be from 1 to "+strconv.Itoa(maxDAGRows), "")
		return nil
	}
	for range n {
		all = append(all, round{spawns, think})
	}
	return all
}

// branching makes rows of all conversations.
type branching struct {
	*decoder
	times map[string]int // how often each conversation was started
	rows  int
	begun int // how many conversations were started
	err   *mooncake.RowError
}

func (b *branching) fail(line int64, format string, args ...any) {
	if b.err == nil {
		b.err = &mooncake.RowError{Line: line, Rule: fmt.Sprintf(format, args...)}
	}
}

func (b *branching) run() *mooncake.RowError {
	for _, c := range b.order {
		b.check(c)
	}
	for _, c := range b.order {
		if b.err == nil && !c.child {
			b.start(c, []string{}, "", mooncake.Opt[float64]{})
		}
	}
	if b.err == nil && b.rows == 0 && len(b.order) > 0 {
		b.fail(b.order[0].line, "every conversation is started by another one: nothing comes first")
	}
	return b.err
}

// check reports an error if a conversation starts others that cannot be started, and marks those that it starts.
func (b *branching) check(c *talk) {
	known := func(id string) *talk {
		child := b.talks[id]
		if child == nil {
			b.fail(c.line, "starts the conversation %.64q, which the file does not have", id)
			return new(talk)
		}
		child.child = true
		return child
	}
	for _, id := range c.before {
		known(id)
	}
	for _, r := range c.rounds {
		for _, id := range r.ids {
			known(id)
		}
	}
	for k, turn := range c.turns {
		for _, f := range turn.forks {
			switch child := known(f.id); {
			case child.forked != 0:
				b.fail(c.line, "forks the conversation %.64q, which line %d does, too: it continues one of the two", f.id, child.forked)
			case child.turns == nil && b.err == nil:
				b.fail(c.line, "forks the conversation %.64q, which has no turns", f.id)
			case c.whole && !child.whole:
				b.fail(c.line, "forks the conversation %.64q, and its turns are whole conversations, which leave nothing to continue: spawn it", f.id)
			default:
				child.forked = c.line
			}
		}
		for _, s := range turn.spawns {
			if known(s.id); s.join > k+1 && s.join >= len(c.turns) {
				b.fail(c.line, "turn %d waits for a conversation, but there are only %d turns: join_at counts turns from 0", s.join, len(c.turns))
			}
		}
		if turn.terminal && k+1 < len(c.turns) {
			b.fail(c.line, "turn %d hands its conversation on, and another turn follows: fork it with \"background\": true, or spawn it", k)
		}
	}
}

// start makes rows of a conversation and of all conversations that it starts, and returns the request id of its last turn. For a
// conversation of rounds, it returns those of the last turns in the last round. The first turn waits for the rows with the request ids in
// waits, and then for the time wait; a fork continues the given session.
func (b *branching) start(c *talk, waits []string, session string, wait mooncake.Opt[float64]) (last []string) {
	switch {
	case b.err != nil:
		return nil
	case c.open:
		b.fail(c.line, "the conversation starts itself, directly or through others: that never ends")
		return nil
	}
	if b.begun++; b.begun > maxDAGRows {
		b.fail(c.line, "the conversations start each other more than %d times", maxDAGRows)
		return nil
	}
	c.open = true
	defer func() { c.open = false }()
	b.times[c.id]++
	name := c.id
	if n := b.times[c.id]; n > 1 {
		name += "#" + strconv.Itoa(n)
	}
	if session == "" || c.whole {
		session = name
	}
	for _, id := range c.before {
		b.start(b.talks[id], []string{}, "", mooncake.Opt[float64]{})
	}
	for _, r := range c.rounds {
		var ended []string
		for _, id := range r.ids {
			ended = append(ended, b.start(b.talks[id], waits, "", r.think)...)
		}
		waits, last = ended, ended
	}
	joins := make(map[int][]string)
	for k, turn := range c.turns {
		if b.rows++; b.rows > maxDAGRows {
			b.fail(c.line, "the conversations start each other so often that there are more than %d turns", maxDAGRows)
		}
		if n := len(waits) + len(joins[k]); n > mooncake.MaxWaitFor { // refused here, because many such lists need too much memory
			b.fail(c.line, "turn %d waits for %d turns of other conversations, and at most %d are allowed", k, n, mooncake.MaxWaitFor)
		}
		if b.err != nil {
			return nil
		}
		row := *turn.row
		row.SessionID, row.RequestID = session, name+":"+strconv.Itoa(k)
		row.WaitFor = append([]string{}, waits...)
		row.WaitFor = append(row.WaitFor, joins[k]...)
		if k == 0 && wait.Set {
			row.Delay = mooncake.Some(row.Delay.V + wait.V)
		}
		row.MessageMode = mooncake.MessageDelta
		if c.whole {
			row.MessageMode = mooncake.MessageHistory
		}
		b.add(&request{row: &row, prompt: new(prompt), later: true, at: b.last, line: c.line})
		waits = []string{row.RequestID}
		for _, s := range turn.spawns {
			joins[s.join] = append(joins[s.join], b.start(b.talks[s.id], waits, "", mooncake.Opt[float64]{})...)
		}
		for _, f := range turn.forks {
			b.start(b.talks[f.id], waits, session, mooncake.Opt[float64]{})
		}
		last = waits
	}
	return last
}

// names reads an array of names.
func (r *record) names(name string) (all []string) {
	r.array(func(_ string, _ int, v jsontext.Value) {
		if v.Kind() != '"' || len(v) > maxName {
			r.fail(name, "", "must be an array of names", "")
			return
		}
		all = append(all, unquoted(v))
	}, "an array of names", name)
	return all
}

// either reads an array whose elements are names or objects.
func (r *record) either(named func(string), visit func(*record), name string) {
	r.array(func(_ string, i int, v jsontext.Value) {
		switch o := r.open(name, v); {
		case v.Kind() == '"' && len(v) <= maxName:
			named(unquoted(v))
		case o != nil && v.Kind() == '{':
			visit(o)
		default:
			r.fail(name, "element "+strconv.Itoa(i), "must be a name or an object", "")
		}
	}, "an array", name)
}
