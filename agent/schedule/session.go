// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"container/list"
	"time"
)

// session is what the scheduler remembers of one conversation.
type session struct {
	id      string
	turns   int // turns entered so far
	busy    int // turns taken up and not ended
	failed  bool
	end     time.Duration // end of the last turn
	pending fifo          // turns whose predecessor has not ended
	idle    *list.Element // place among the idle ones; nil while busy
}

// sessionTable holds the sessions by id and knows which idle one has been so for longest. The trace does not say
// which turn is a session's last, so an idle session is kept until its place is needed.
type sessionTable struct {
	byID map[string]*session
	idle list.List // of *session, longest idle first
}

// get returns the session, new if need be, and marks it busy. When more than limit are kept, those idle for
// longest are closed first.
func (t *sessionTable) get(id string, limit int, closed func(*session)) *session {
	if t.byID == nil {
		t.byID = make(map[string]*session)
	}
	ses := t.byID[id]
	if ses == nil {
		for len(t.byID) >= limit && t.idle.Len() > 0 {
			old := t.idle.Remove(t.idle.Front()).(*session)
			delete(t.byID, old.id)
			closed(old)
		}
		ses = &session{id: id}
		t.byID[id] = ses
	}
	if ses.idle != nil {
		t.idle.Remove(ses.idle)
		ses.idle = nil
	}
	return ses
}

// touch puts a session that has nothing under way among the idle ones.
func (t *sessionTable) touch(ses *session) {
	if ses.busy == 0 && ses.pending.len() == 0 && ses.idle == nil && t.byID[ses.id] == ses {
		ses.idle = t.idle.PushBack(ses)
	}
}

func (t *sessionTable) each(f func(*session)) {
	for _, ses := range t.byID {
		f(ses)
	}
}

func (t *sessionTable) closeAll(closed func(*session)) {
	for id, ses := range t.byID {
		delete(t.byID, id)
		closed(ses)
	}
	t.idle.Init()
}
