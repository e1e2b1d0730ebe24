// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

// This file gives the places of an arrival process to users in turn: place k belongs to user k mod N, who sends the next turn of a
// session there, and takes up the next session of the trace when one has no more turns. So each user sends a turn every N ÷ rate
// seconds: AIPerf's user-centric rate. When a turn goes is known before the run, whatever the engine does; only a turn whose
// predecessor has not ended waits for that, as usual.

import "fmt"

// MaxUsers bounds Arrivals.Users.
const MaxUsers = 100_000

// usersLookahead is the least number of rows that are read ahead for users: a session whose next turn is not among them has ended.
const usersLookahead = 1 << 16

// users are those of a stream.
type users struct {
	seats   []*chat                  // the session of each; nil: of none
	place   int64                    // the next one
	open    map[string]*chat         // sessions that a user has or may get, by id
	waiting []*chat                  // of these, those that no user has, in the order in which they begin
	over    recent[string, struct{}] // sessions that have ended
	held    int                      // rows of all of them
	err     error                    // what ended the reading
}

// chat is a session, or a row that has none.
type chat struct {
	id   string
	rows []entry // that are still to be sent
}

func newUsers(n int) *users {
	return &users{seats: make([]*chat, n), open: make(map[string]*chat)}
}

// nextTurn returns the next row at its place.
func (s *Stream) nextTurn() (entry, error) {
	u := s.users
	for {
		s.seat()
		if u.held == 0 {
			return entry{}, u.err
		}
		seat := &u.seats[u.place%int64(len(u.seats))]
		u.place++
		at := s.arrivals.next()
		if *seat != nil && len((*seat).rows) == 0 {
			u.end(*seat)
			*seat = nil
		}
		if *seat == nil && len(u.waiting) > 0 {
			*seat, u.waiting = u.waiting[0], u.waiting[1:]
		}
		if *seat == nil { // the trace has no session left for this user
			continue
		}
		e := (*seat).rows[0]
		(*seat).rows = (*seat).rows[1:]
		u.held--
		e.offset, e.placed = at, true
		return e, s.reachable(e)
	}
}

// seat reads on until as many rows are held as the look-ahead has, and puts each into its session.
func (s *Stream) seat() {
	u := s.users
	for u.held < s.opt.Lookahead && u.err == nil {
		e, err := s.inWindow()
		switch {
		case err != nil:
			u.err = err
		case e.WaitFor != nil && !s.opt.OpenSessions:
			u.err = fmt.Errorf("line %d: the row is part of a graph (wait_for), and has no place among the turns of users; leave --users out, or give --open-loop", e.line)
		case !u.add(e):
			u.err = fmt.Errorf("line %d: the row comes more than %d rows after the turn before it, and the user of its session has left; raise --lookahead",
				e.line, s.opt.Lookahead)
		}
	}
}

// add puts a row into its session, and reports false where that has ended.
func (u *users) add(e entry) bool {
	c := u.open[e.SessionID]
	if e.SessionID == "" || c == nil {
		if _, over := u.over.get(e.SessionID); over {
			return false
		}
		c = &chat{id: e.SessionID}
		u.waiting = append(u.waiting, c)
		if c.id != "" {
			u.open[c.id] = c
		}
	}
	c.rows = append(c.rows, e)
	u.held++
	return true
}

// end ends a session.
func (u *users) end(c *chat) {
	if c.id != "" {
		delete(u.open, c.id)
		u.over.set(c.id, struct{}{})
	}
}
