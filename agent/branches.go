// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// In a graph, several rows may continue the conversation of one row: the next turn of the agent, and the agents that it started. This file
// stores these conversations, each in the state in which its row ended.

import (
	"errors"
	"sync"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/mooncake"
)

// maxBranches is the maximum number of rows whose conversations are stored.
const maxBranches = 1 << 15

var errNoBranch = errors.New("the conversation that the row continues is not known: the row waits for none of the rows of its session that this part of the run sent recently")

// branches are the stored conversations of rows of graphs. The zero value is empty.
type branches struct {
	mu    sync.Mutex
	known map[int64]branch // by row
	order []int64          // keys of known, oldest first
}

type branch struct {
	session string
	history *prompt.History
}

// begin returns the conversation that a row with new messages continues: that of the first row of its session for which it waits. The first
// row of a session begins a new one. The result is nil if the row's prompt is complete by itself.
func (b *branches) begin(it *schedule.Item) (*prompt.History, error) {
	row := it.Row
	if row.Kind() != mooncake.KindMessages || row.MessageMode != mooncake.MessageDelta {
		return nil, nil //nolint:nilnil // the row continues no conversation
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, index := range it.After {
		if one, known := b.known[index]; known && one.session == row.SessionID {
			return one.history.Fork(), nil
		}
	}
	if it.Turn > 0 {
		return nil, errNoBranch
	}
	return new(prompt.History), nil
}

// end stores the conversation of a served row, unless it is nil.
func (b *branches) end(it *schedule.Item, history *prompt.History) {
	if history == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil {
		b.known = make(map[int64]branch)
	}
	b.known[it.Index] = branch{it.Row.SessionID, history}
	if b.order = append(b.order, it.Index); len(b.order) > maxBranches {
		delete(b.known, b.order[0])
		b.order = b.order[1:]
	}
}
