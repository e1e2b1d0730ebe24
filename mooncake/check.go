// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"fmt"
	"math"
)

// Rule names a rule of the trace format.
type Rule string

// The rules. A trace that keeps all of them is read alike by every tool.
const (
	V1 Rule = "V1" // timestamp, input_length, output_length and hash_ids are there
	V2 Rule = "V2" // timestamps do not decrease
	V3 Rule = "V3" // a row has ceil(input_length / block size) ids
	V4 Rule = "V4" // no id occurs twice in a row
	V5 Rule = "V5" // an id always follows the same id
	V6 Rule = "V6" // a block always holds the same number of tokens
	V7 Rule = "V7" // ids are 0, 1, 2, ... in order of first appearance
	V8 Rule = "V8" // ids are below 2^31
	V9 Rule = "V9" // hash_ranges tell the same prefixes as hash_ids, only finer
)

var ruleTexts = map[Rule]string{
	V1: "timestamp, input_length, output_length or hash_ids is missing",
	V2: "earlier than the row before",
	V3: "the number of ids is not ceil(input_length / block size)",
	V4: "an id occurs twice in the row",
	V5: "an id follows another id than elsewhere: ids do not stand for prefixes, or files were concatenated",
	V6: "an id's block holds another number of tokens elsewhere",
	V7: "an id is out of order: ids are not 0, 1, 2, ... by first appearance",
	V8: "an id is 2^31 or more, which tools with 32-bit ids cannot read",
	V9: "hash_ranges tell other prefixes than hash_ids, or than themselves elsewhere",
}

// Violation counts the rows that break a rule.
type Violation struct {
	Rule  Rule   `json:"rule"`
	Count int64  `json:"count"` // rows
	Line  int64  `json:"first_line"`
	Text  string `json:"text"` // one sentence for people
}

// CheckOptions says how to check a trace. The zero value is usable.
type CheckOptions struct {
	BlockSize int // tokens per id; 0 is [BlockSize]
	// FineBlockSize is the number of tokens per id of hash_ranges; 0 leaves V9 unchecked.
	FineBlockSize int
	MaxIDs        int // distinct ids to remember for V4 to V7; 0 is [DefaultMaxIDs]
}

// Checker checks a trace against the rules V1 to V9, row by row.
type Checker struct {
	forest *forest
	ranges *agreement // nil without a fine block size
	block  int64      // at which V9 is broken first
	prev   Opt[float64]
	found  map[Rule]*Violation
	rows   int64
	maxID  uint64
}

// NewChecker returns a checker.
func NewChecker(opt CheckOptions) *Checker {
	c := &Checker{forest: newForest(opt.BlockSize, opt.MaxIDs), found: make(map[Rule]*Violation)}
	c.ranges = newAgreement(opt.FineBlockSize, c.forest.blockSize, c.forest.max)
	return c
}

// Add checks the next row of the file, which stands on the given line.
func (c *Checker) Add(row *Row, line int64) { c.add(row, line) }

func (c *Checker) add(row *Row, line int64) (bad faults, fresh int) {
	c.rows++
	note := func(broken bool, rule Rule) {
		if !broken {
			return
		}
		v := c.found[rule]
		if v == nil {
			v = &Violation{Rule: rule, Line: line}
			c.found[rule] = v
		}
		v.Count++
	}
	note(!row.Timestamp.Set || !row.InputLength.Set || !row.OutputLength.Set || row.HashIDs == nil, V1)
	note(row.Timestamp.Set && c.prev.Set && row.Timestamp.V < c.prev.V, V2)
	if row.Timestamp.Set {
		c.prev = row.Timestamp
	}
	note(row.HashIDs != nil && len(row.HashIDs) != BlockCount(row.InputLength.V, c.forest.blockSize), V3)
	var largest uint64
	for _, id := range row.HashIDs {
		largest = max(largest, id)
	}
	note(largest >= 1<<31, V8)
	c.maxID = max(c.maxID, largest)

	bad, fresh = c.forest.add(row)
	note(bad&repeated != 0, V4)
	note(bad&parents != 0, V5)
	note(bad&fills != 0, V6)
	note(bad&order != 0, V7)
	if c.ranges != nil {
		if block := c.ranges.add(row, c.forest, bad); block >= 0 {
			if c.count(V9) == 0 {
				c.block = block
			}
			bad |= disagreeing
			note(true, V9)
		}
	}
	return bad, fresh
}

// Violations returns the rules that are broken, in order.
func (c *Checker) Violations() []Violation {
	out := []Violation{}
	for _, rule := range [...]Rule{V1, V2, V3, V4, V5, V6, V7, V8, V9} {
		v := c.found[rule]
		if v == nil {
			continue
		}
		w := *v
		w.Text = plural(w.Count, "row") + ": " + ruleTexts[rule]
		if rule == V8 && c.maxID >= 1<<53 {
			w.Text += "; ids of 2^53 or more lose digits in JavaScript and jq"
		}
		if rule == V9 {
			w.Text += fmt.Sprintf("; the first at block %d", c.block)
		}
		out = append(out, w)
	}
	return out
}

// Unchecked returns why V4 to V7 are not known, or "" when they are.
func (c *Checker) Unchecked() string {
	if c.forest.full {
		return fmt.Sprintf("more than %d distinct ids", c.forest.max)
	}
	return ""
}

// UncheckedRanges returns why V9 is not known, or "" when it is.
func (c *Checker) UncheckedRanges() string {
	if c.ranges == nil {
		return ""
	}
	return c.ranges.full
}

// count returns how many rows break a rule.
func (c *Checker) count(rule Rule) int64 {
	if v := c.found[rule]; v != nil {
		return v.Count
	}
	return 0
}

// strict is Add for a reader that refuses ids without a definite parent and fill. Other rules do not matter to it: a
// row out of order or a gap in the numbers can be read in one way only.
func (c *Checker) strict(row *Row, line int64) *RowError {
	bad, _ := c.add(row, line)
	var rule Rule
	switch {
	case bad&repeated != 0:
		rule = V4
	case bad&parents != 0:
		rule = V5
	case bad&fills != 0:
		rule = V6
	case bad&disagreeing != 0:
		return &RowError{
			Field: "hash_ranges", Value: fmt.Sprintf("block %d", c.block), Rule: "the row breaks " + string(V9) + ": " + ruleTexts[V9],
			Advice: "read without strict to replay it all the same",
		}
	default:
		return nil
	}
	return &RowError{
		Field: "hash_ids", Rule: "the row breaks " + string(rule) + ": " + ruleTexts[rule],
		Advice: "read without strict to replay it all the same",
	}
}

// isInteger reports whether a float holds an integer exactly.
func isInteger(f float64) bool { return f == math.Trunc(f) && math.Abs(f) <= 1<<53 }
