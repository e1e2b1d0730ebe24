// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"slices"

	"github.com/moonloop/moonloop/mooncake"
)

// This file makes turns follow each other by delays, and renames models. Both depend on earlier rows of the session.

// turns computes the delays of later turns.
type turns struct {
	c    *Config
	last map[talker]turn // of each session

	made, unknown, capped int64
	cut                   float64 // ms
}

// talker is a session of a copy.
type talker struct {
	session uint64
	copy    int
}

// turn records when a turn was sent, and how long it took, in ms.
type turn struct {
	at   mooncake.Opt[float64]
	took mooncake.Opt[float64]
}

func (t *turns) rows(in step) step {
	return func() (*item, error) {
		it, err := in()
		if err != nil {
			return nil, err
		}
		switch {
		case it.WaitFor != nil: // the rows that it waits for decide when it is sent
			if t.c.Turns == TurnsAtOnce && len(it.WaitFor) > 0 {
				it.Delay, it.ToolWait = mooncake.Opt[float64]{}, mooncake.Opt[float64]{}
				t.made++
			}
		case it.session != 0 && t.c.Turns != TurnsAsTimed:
			who := talker{it.session, it.copy}
			before, later := t.last[who]
			t.last[who] = turn{it.Timestamp, it.Observed.Duration}
			if later {
				t.follow(it, before)
			}
		}
		if most := millis(t.c.MaxDelay); most > 0 && it.Delay.V > most {
			t.capped++
			t.cut += it.Delay.V - most
			it.Delay.V = most
		}
		return it, nil
	}
}

// follow sets the delay of a turn. If the turn or the one before has no timestamp, nothing changes.
func (t *turns) follow(it *item, before turn) {
	switch {
	case t.c.Turns == TurnsAtOnce:
		it.Delay = mooncake.Some(0.)
	case !it.Timestamp.Set || !before.at.Set:
		return
	default:
		gap := it.Timestamp.V - before.at.V
		if t.c.Turns == TurnsFromEnd {
			gap -= before.took.V
			if !before.took.Set {
				t.unknown++
			}
		}
		it.Delay = mooncake.Some(tidy(max(gap, 0)))
	}
	it.Timestamp = mooncake.Opt[float64]{}
	t.made++
}

// named renames models.
func named(names []string, in step) step {
	seen := map[string][]string{} // the models of each conversation, as in the trace
	turn := 0
	return func() (*item, error) {
		it, err := in()
		if err != nil {
			return nil, err
		}
		if it.Model == "" || it.SessionID == "" {
			it.Model = names[turn]
			turn = (turn + 1) % len(names)
			return it, nil
		}
		key := conversation(it.SessionID)
		i := slices.Index(seen[key], it.Model)
		if i < 0 {
			i = len(seen[key])
			seen[key] = append(seen[key], it.Model)
		}
		it.Model = names[i%len(names)]
		return it, nil
	}
}
