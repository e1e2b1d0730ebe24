// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

// This file assigns the arrivals of an arrival process to users in turn: arrival k belongs to user k mod N. At that time, the user sends
// the next turn of its session, or, if that has no more turns, begins the next session of the trace. So each user sends a turn every N ÷ rate
// seconds, as with AIPerf's user-centric rate. The time of a turn is known before the run; only a turn whose predecessor has not ended
// waits for it, as usual.

import "fmt"

// MaxUsers bounds Arrivals.Users.
const MaxUsers = 100_000

// usersLookahead is the minimum number of rows that are read ahead for users: a session whose next turn is not among them counts as ended.
const usersLookahead = 1 << 16

// users are the users of a stream.
type users struct {
	seats   []*chat                  // the session of each user; nil: none
	place   int64                    // number of the next arrival
	open    map[string]*chat         // sessions that a user has or may get, by id
	waiting []*chat                  // sessions without a user, in the order in which they begin
	over    recent[string, struct{}] // sessions that have ended
	held    int                      // rows of all sessions
	err     error                    // the error that ended the reading
}

// chat is a session, or a row that has none.
type chat struct {
	id   string
	rows []entry // rows that are not sent yet
}

func newUsers(n int) *users {
	return &users{seats: make([]*chat, n), open: make(map[string]*chat)}
}

// nextTurn returns the next row, at its arrival time.
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

// seat reads ahead until it has as many rows as the look-ahead, and adds each to its session.
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
			u.err = fmt.Errorf("line %d: the row comes more than %d rows after the turn before it, so its session was taken to have ended; raise --lookahead",
				e.line, s.opt.Lookahead)
		}
	}
}

// add adds a row to its session, and returns false if the session has ended.
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
