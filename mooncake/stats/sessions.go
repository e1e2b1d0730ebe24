// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"slices"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/internal/words"
)

// SessionDetector detects the session mode of a trace from its rows. Rows are added in file order. It remembers the ids of the last turn of
// a limited number of sessions.
type SessionDetector struct {
	blockSize, max int
	last           map[string]turn
	sessions       int64 // with two rows or more
	unread         int64 // rows of sessions beyond max
	evidence       [evidenceKinds]int64
}

// turn is what the detector remembers of a session's last row.
type turn struct {
	ids  []uint64 // its full blocks; nil when it has none
	many bool     // the session has two rows already
}

type evidence uint8

const (
	startsWith    evidence = iota // all full blocks of the turn before
	startsAlike                   // some of its full blocks
	disjoint                      // no ids in common
	overlaps                      // ids in common, but not at the beginning
	historyRows                   // messages with the conversation
	deltaRows                     // messages with the new turn
	payloadRows                   // whole bodies
	textRows                      // text_input, a user message
	lengthRows                    // nothing to compare
	evidenceKinds = iota
)

// evidences has, for each kind of evidence, the words for one later turn and for several, and the mode that such turns show: unknown or
// none if they show nothing.
var evidences = [evidenceKinds]struct {
	one, several, text string
	mode               mooncake.SessionMode
}{
	startsWith:  {"begins", "begin", "with all full blocks of the turn before", mooncake.SessionFull},
	startsAlike: {"begins", "begin", "with only some blocks of the turn before", mooncake.SessionFull},
	disjoint:    {"begins", "begin", "with new blocks only", mooncake.SessionDelta},
	overlaps:    {"has", "have", "blocks of the turn before, but not from the beginning", mooncake.SessionUnknown},
	historyRows: {"has", "have", "messages with the whole conversation", mooncake.SessionFull},
	deltaRows:   {"has", "have", "messages with message_mode delta", mooncake.SessionDelta},
	payloadRows: {"has", "have", "whole bodies", mooncake.SessionFull},
	textRows:    {"has", "have", "text_input, which is one new user message", mooncake.SessionDelta},
	lengthRows:  {"has", "have", "nothing to compare with the turn before", mooncake.SessionNone},
}

// DefaultDetectorSessions is the number of sessions that a detector remembers.
const DefaultDetectorSessions = 1 << 16

// NewSessionDetector returns a detector. blockSize is in tokens, 0 = [mooncake.BlockSize]; sessions is the number of sessions to remember,
// 0 = [DefaultDetectorSessions].
func NewSessionDetector(blockSize, sessions int) *SessionDetector {
	if blockSize <= 0 {
		blockSize = mooncake.BlockSize
	}
	if sessions <= 0 {
		sessions = DefaultDetectorSessions
	}
	return &SessionDetector{blockSize: blockSize, max: sessions, last: make(map[string]turn)}
}

// Add examines the next row in file order. It keeps a reference to the row's ids.
func (d *SessionDetector) Add(row *mooncake.Row) {
	if row.SessionID == "" {
		return
	}
	now := turn{}
	if row.Kind() == mooncake.KindLength {
		ids := row.Blocks(d.blockSize)
		now.ids = ids[:min(len(ids), int(row.InputLength.V/int64(d.blockSize)))]
	}
	before, later := d.last[row.SessionID]
	if !later && len(d.last) >= d.max {
		d.unread++
		return
	}
	if later {
		if !before.many {
			d.sessions++
		}
		now.many = true
		d.evidence[compare(before.ids, row, d.blockSize)]++
	}
	d.last[row.SessionID] = now
}

// compare returns what a later turn shows, given the full blocks of the turn before.
func compare(before []uint64, row *mooncake.Row, blockSize int) evidence {
	switch k := row.Kind(); {
	case k == mooncake.KindMessages && row.MessageMode == mooncake.MessageDelta:
		return deltaRows
	case k == mooncake.KindMessages:
		return historyRows
	case k == mooncake.KindPayload:
		return payloadRows
	case k == mooncake.KindText:
		return textRows
	}
	ids := row.Blocks(blockSize)
	switch {
	case len(before) == 0 || len(ids) == 0:
		return lengthRows
	case len(ids) >= len(before) && slices.Equal(ids[:len(before)], before):
		return startsWith
	case ids[0] == before[0]:
		return startsAlike
	}
	seen := make(map[uint64]bool, len(before))
	for _, id := range before {
		seen[id] = true
	}
	if slices.ContainsFunc(ids, func(id uint64) bool { return seen[id] }) {
		return overlaps
	}
	return disjoint
}

// Mode returns the mode that the rows so far show, and one sentence with the evidence. The mode is [SessionUnknown] if they show nothing
// (lengths only) or both modes.
func (d *SessionDetector) Mode() (mooncake.SessionMode, string) {
	if d.sessions == 0 {
		return mooncake.SessionNone, "no session has more than one row"
	}
	mode := mooncake.SessionNone
	var parts []string
	for kind, n := range d.evidence {
		if n == 0 {
			continue
		}
		e := evidences[kind]
		switch {
		case mode == mooncake.SessionNone:
			mode = e.mode
		case e.mode != mooncake.SessionNone && e.mode != mode:
			mode = mooncake.SessionUnknown
		}
		verb := e.several
		if n == 1 {
			verb = e.one
		}
		parts = append(parts, words.Plural(n, "later turn")+" "+verb+" "+e.text)
	}
	text := words.Plural(d.sessions, "session") + " with more than one row: " + strings.Join(parts, ", ")
	if d.unread > 0 {
		text += "; not examined: " + words.Plural(d.unread, "row") + " of further sessions"
	}
	if mode != mooncake.SessionFull && mode != mooncake.SessionDelta {
		mode = mooncake.SessionUnknown
		text += "; the rows do not show whether they hold whole prompts (full) or new turns (delta)"
	}
	return mode, text
}
