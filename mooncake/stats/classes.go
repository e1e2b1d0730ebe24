// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

// This file counts requests by class, both for a trace and for what a replay would send of it.

import (
	"maps"
	"slices"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// MaxClasses is the maximum number of classes that are counted separately.
const MaxClasses = 64

// ClassStats counts the rows of a class.
type ClassStats struct {
	// Class is empty for rows without a class, and _OTHER for the classes after the first [MaxClasses].
	Class        string `json:"class"`
	Rows         int64  `json:"rows"`
	InputTokens  int64  `json:"input_tokens"`
	OutputTokens int64  `json:"output_tokens"`
	// Priority is the priority that all its rows have; absent if one has none, or if they differ.
	Priority *int64 `json:"priority,omitempty"`

	priority mooncake.Opt[int64] // of the first row
	mixed    bool
}

// Classes counts rows by their class. The zero value is ready to use.
type Classes struct{ by map[string]*ClassStats }

// Add counts a row of a class, with its tokens and its priority. The class is empty if the row has none.
func (c *Classes) Add(class string, input, output int64, priority mooncake.Opt[int64]) {
	one := c.by[class]
	if one == nil {
		if len(c.by) >= MaxClasses {
			class = semconv.ErrorOther
		}
		if one = c.by[class]; one == nil {
			if c.by == nil {
				c.by = make(map[string]*ClassStats)
			}
			one = &ClassStats{Class: class, priority: priority}
			c.by[class] = one
		}
	}
	one.Rows++
	one.InputTokens, one.OutputTokens = one.InputTokens+input, one.OutputTokens+output
	one.mixed = one.mixed || one.priority != priority
}

// Stats returns the classes by name; nil if no row has one.
func (c *Classes) Stats() (list []ClassStats) {
	if len(c.by) == 1 && c.by[""] != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.by)) {
		one := *c.by[name]
		if one.priority.Set && !one.mixed {
			one.Priority = new(one.priority.V)
		}
		list = append(list, one)
	}
	return list
}
