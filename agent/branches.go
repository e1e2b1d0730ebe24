// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// In a graph, several rows may go on with the conversation of one: an agent's own turns, and those that it was forked for. This file keeps
// the conversations for them, each as it was when its row had ended.

import (
	"errors"
	"sync"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/mooncake"
)

// maxBranches bounds the rows whose conversations are kept.
const maxBranches = 1 << 15

var errNoBranch = errors.New("the conversation that the row goes on with is not there: of the rows of its session that were sent lately, in this part of the run, it waits for none")

// branches are the conversations of rows of graphs. The zero value is none.
type branches struct {
	mu    sync.Mutex
	known map[int64]branch // by row
	order []int64          // of these, the oldest first
}

type branch struct {
	session string
	history *prompt.History
}

// begin returns the conversation that a row of new messages goes on with: that of the first row of its session that it waits for. The first
// row of a session begins one. It is nil where the row's prompt is another one, which is whole.
func (b *branches) begin(it *schedule.Item) (*prompt.History, error) {
	row := it.Row
	if row.Kind() != mooncake.KindMessages || row.MessageMode != mooncake.MessageDelta {
		return nil, nil //nolint:nilnil // it has none
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

// end keeps the conversation of a row that was served; nil is none.
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
