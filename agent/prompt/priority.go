// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

// This file sets the priority of requests. If there are several, the first in this order counts: the row's extra, the extra inputs of all
// rows, that of the row's class, that of every class, the row's own.

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
)

// Priorities are the priorities of requests, by the class of their rows. vLLM handles the lowest number first; the meaning of a number
// depends on the engine.
type Priorities map[string]int64

// EveryClass stands for all classes that have no priority of their own, and for rows without a class.
const EveryClass = "*"

// ParsePriorities reads CLASS=N pairs. A class may contain equals signs.
func ParsePriorities(pairs ...string) (Priorities, error) {
	all := make(Priorities, len(pairs))
	for _, pair := range pairs {
		i := strings.LastIndexByte(pair, '=')
		if i < 1 {
			return nil, fmt.Errorf("%.64q: want CLASS=N, such as batch=10", pair)
		}
		class := pair[:i]
		n, err := strconv.ParseInt(pair[i+1:], 10, 64)
		switch _, known := all[class]; {
		case err != nil:
			return nil, fmt.Errorf("%.64q: its priority is not an integer; want CLASS=N, such as batch=10", pair)
		case known:
			return nil, fmt.Errorf("the class %.64q has two priorities: give it one", class)
		}
		all[class] = n
	}
	return all, nil
}

// Priority returns the priority of a row's request, unless extras replace it; absent if the engine does not support priorities, or none is
// known. A payload has its own.
func (b *Builder) Priority(row *mooncake.Row) mooncake.Opt[int64] {
	return b.opt.Priorities.of(row, b.dialect)
}

// PriorityOf returns the result of [Builder.Priority], as far as the engine is known.
func (o Options) PriorityOf(row *mooncake.Row) mooncake.Opt[int64] {
	d, _ := o.withDefaults().dialect()
	return o.Priorities.of(row, d)
}

func (p Priorities) of(row *mooncake.Row, d dialect) mooncake.Opt[int64] {
	if !d.priority {
		return mooncake.Opt[int64]{}
	}
	if n, ok := p[row.Class]; ok && row.Class != "" {
		return mooncake.Some(n)
	}
	if n, ok := p[EveryClass]; ok {
		return mooncake.Some(n)
	}
	return row.Priority
}

// TakesPriority reports whether the engine supports a priority at the endpoint.
func (b *Builder) TakesPriority() bool { return b.dialect.priority }

// statedPriority returns the priority in a body.
func statedPriority(body object) (none mooncake.Opt[int64]) {
	raw := body.get(priorityField)
	if raw == nil {
		return none
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil { // it is not an integer
		return none
	}
	return mooncake.Some(n)
}
