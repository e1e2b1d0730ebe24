// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"container/list"
	"hash/maphash"
	"time"
)

// Session is one conversation, as long as the schedule remembers it.
type Session struct {
	ID string
	// Data belongs to the caller: the state that it passes from turn to turn. The scheduler does not use it.
	Data any

	turns   int // turns numbered so far
	busy    int // turns that were admitted and have not ended
	failed  bool
	gone    Reason        // if failed: why its later turns are skipped
	end     time.Duration // end of the last turn
	pending fifo          // turns whose predecessor has not ended
	idle    *list.Element // element of the idle list; nil while busy
}

// maxClosed is the maximum number of sessions that are remembered as closed to make room.
const maxClosed = 1 << 20

// sessionTable has the sessions by id, and the idle ones in the order in which they became idle. The trace does not say which turn is a
// session's last one, so an idle session is kept until its memory is needed.
type sessionTable struct {
	byID   map[string]*Session
	idle   list.List // of *Session, longest idle first
	seed   maphash.Seed
	closed map[uint64]int // turns of the sessions closed to make room, by hashes of their ids
}

func newSessionTable() sessionTable {
	return sessionTable{byID: make(map[string]*Session), seed: maphash.MakeSeed(), closed: make(map[uint64]int)}
}

// get returns the session with an id, and removes it from the idle ones. If it is not known, get makes it, and known is false. If there
// would be more than limit sessions then, get closes those that have been idle longest.
func (t *sessionTable) get(id string, limit int, closed func(*Session)) (ses *Session, known bool) {
	ses, known = t.byID[id]
	if !known {
		for len(t.byID) >= limit && t.idle.Len() > 0 {
			old := t.idle.Remove(t.idle.Front()).(*Session)
			delete(t.byID, old.ID)
			closed(old)
		}
		ses = &Session{ID: id}
		t.byID[id] = ses
	}
	if ses.idle != nil {
		t.idle.Remove(ses.idle)
		ses.idle = nil
	}
	return ses, known
}

// remember records that a session was closed to make room.
func (t *sessionTable) remember(ses *Session) {
	if len(t.closed) < maxClosed {
		t.closed[maphash.String(t.seed, ses.ID)] = ses.turns
	}
}

// wasClosed reports whether a session with this id was closed to make room, and how many turns it had.
func (t *sessionTable) wasClosed(id string) (turns int, was bool) {
	turns, was = t.closed[maphash.String(t.seed, id)]
	return turns, was
}

// touch adds a session to the idle ones, unless one of its turns is under way or pending.
func (t *sessionTable) touch(ses *Session) {
	if ses.busy == 0 && len(ses.pending) == 0 && ses.idle == nil && t.byID[ses.ID] == ses {
		ses.idle = t.idle.PushBack(ses)
	}
}
