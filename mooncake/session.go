// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"fmt"
	"slices"
)

// SessionMode says what the rows of one session_id contain. The two conventions look alike and replay differently: with the wrong one, a
// conversation is sent twice, or not at all.
type SessionMode uint8

// The session modes.
const (
	SessionUnknown SessionMode = iota // there are sessions, but the rows do not show the mode
	SessionFull                       // each row has its whole prompt, including the turns before
	SessionDelta                      // each row has only the new turn; the turns before and their replies are sent before it
	SessionNone                       // no session has two rows, so the mode does not matter
)

var sessionModes = [...]string{"unknown", "full", "delta", "none"}

// String returns the name of the mode.
func (m SessionMode) String() string {
	if int(m) >= len(sessionModes) {
		return fmt.Sprintf("session mode %d", uint8(m))
	}
	return sessionModes[m]
}

// ParseSessionMode reads "full" or "delta". People can choose only these two; "" is SessionUnknown.
func ParseSessionMode(s string) (SessionMode, error) {
	switch s {
	case "":
		return SessionUnknown, nil
	case SessionFull.String():
		return SessionFull, nil
	case SessionDelta.String():
		return SessionDelta, nil
	}
	return SessionUnknown, fmt.Errorf("session mode %s: must be full (each row holds its whole prompt) or delta (each row holds the new turn)",
		word(s))
}

// MarshalText writes the name of the mode.
func (m SessionMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (m *SessionMode) UnmarshalText(b []byte) (err error) {
	if at := slices.Index(sessionModes[:], string(b)); at >= 0 {
		*m = SessionMode(at) //nolint:gosec // of four
		return nil
	}
	*m, err = ParseSessionMode(string(b))
	return err
}
