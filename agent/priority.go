// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file reports the priorities before the first request, because only people can check whether a number means what its author meant.

import (
	"maps"
	"slices"

	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
)

// sayPriorities reports which rows of the look-ahead have their own priority, and whether it is sent, and which classes with a priority
// have no row in the look-ahead.
func sayPriorities(rows *load.Stream, b *prompt.Builder, said *notices) {
	classes := b.Options().Priorities
	own, missing := int64(0), maps.Clone(classes)
	delete(missing, prompt.EveryClass)
	rows.Ahead(func(_ int64, row *mooncake.Row) bool {
		delete(missing, row.Class)
		if row.Priority.Set && row.Kind() != mooncake.KindPayload && (!b.TakesPriority() || b.Priority(row) == row.Priority) {
			own++
		}
		return true
	})
	switch {
	case own == 0:
	case b.TakesPriority():
		said.note("priority: %s of the first rows have their own priority, which is sent unchanged: vLLM handles the lowest number first, and rejects all but 0 unless it schedules by priority; SGLang and Dynamo's traces mean the highest first (--priority CLASS=N, or '*=N', sends another number)",
			term.Counted(own, "rows"))
	default:
		said.warn("priority: %s of the first rows have their own priority, which is not sent: engines of profile %s accept none at this endpoint", term.Counted(own, "rows"), b.Options().Profile)
	}
	for _, class := range slices.Sorted(maps.Keys(missing)) {
		said.warn("priority: none of the first rows is of the class %.64q", class)
	}
}
