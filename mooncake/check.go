// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/moonloop/moonloop/mooncake/internal/words"
)

// Rule is the name of a rule of the trace format.
type Rule string

// The rules. All tools read a trace alike if it follows all of them.
const (
	V1 Rule = "V1" // timestamp, input_length, output_length and hash_ids are present
	V2 Rule = "V2" // timestamps do not decrease
	V3 Rule = "V3" // a row has ceil(input_length / block size) ids
	V4 Rule = "V4" // no id occurs twice in a row
	V5 Rule = "V5" // an id always follows the same id
	V6 Rule = "V6" // a block always holds the same number of tokens
	V7 Rule = "V7" // ids are 0, 1, 2, ... in order of first appearance
	V8 Rule = "V8" // ids are below 2^31
	V9 Rule = "V9" // hash_ranges describe the same prefixes as hash_ids, only finer
)

var ruleTexts = map[Rule]string{
	V1: "timestamp, input_length, output_length or hash_ids is missing",
	V2: "earlier than the row before",
	V3: "the number of ids is not ceil(input_length / block size)",
	V4: "an id occurs twice in the row",
	V5: "an id follows a different id than elsewhere: ids do not stand for prefixes, or files were concatenated",
	V6: "an id's block holds a different number of tokens elsewhere",
	V7: "an id is out of order: ids are not 0, 1, 2, ... by first appearance",
	V8: "an id is 2^31 or more, which tools with 32-bit ids cannot read",
	V9: "hash_ranges describe other prefixes than hash_ids, or than other rows do",
}

// Violation counts the rows that break a rule.
type Violation struct {
	Rule  Rule   `json:"rule"`
	Count int64  `json:"count"` // rows
	Line  int64  `json:"first_line"`
	Text  string `json:"text"` // one sentence for people
}

// CheckOptions configures a [Checker]. The zero value is usable.
type CheckOptions struct {
	BlockSize int // tokens per id; 0 = [BlockSize]
	// FineBlockSize is the number of tokens per id of hash_ranges; 0 = do not check V9.
	FineBlockSize int
	// MaxIDs is the number of distinct ids to remember for V4 to V7. 0 = [DefaultMaxIDs], or, if Memory is set, 2^31, of which at most
	// [DefaultMaxIDs] may be ids that are not canonical.
	MaxIDs int
	// Memory limits the memory for ids and rows, in bytes. Beyond it they are in temporary files in the folder TempDir ("" is the system's).
	// 0 = no limit.
	Memory  int
	TempDir string
}

// share returns 1/part of the memory, in bytes; 0 = no limit.
func (o *CheckOptions) share(part int) int {
	if o.Memory <= 0 {
		return 0
	}
	return max(o.Memory/part, 1)
}

// rules lists all rules. The index of a rule is its bit in [faults].
var rules = [...]Rule{V1, V2, V3, V4, V5, V6, V7, V8, V9}

// faults is a set of rules that a row breaks.
type faults uint16

const (
	incomplete faults = 1 << iota
	backward
	miscounted
	repeated
	parents
	fills
	order
	large
	disagreeing
)

// Checker checks a trace against the rules V1 to V9, row by row.
type Checker struct {
	forest *forest
	ranges *agreement // nil without a fine block size
	block  int64      // the first block at which V9 is broken
	prev   Opt[float64]
	found  [len(rules)]Violation
	rows   int64
	maxID  uint64
}

// NewChecker returns a checker.
func NewChecker(opt CheckOptions) *Checker {
	c := &Checker{forest: newForest(&opt)}
	c.ranges = newAgreement(&opt, c.forest.blockSize, c.forest.max)
	return c
}

// Add checks the next row of the file, which is on the given line.
func (c *Checker) Add(row *Row, line int64) { c.add(row, line) }

func (c *Checker) add(row *Row, line int64) faults {
	c.rows++
	bad := c.forest.add(row)
	note := func(broken bool, rule faults) {
		if broken {
			bad |= rule
		}
	}
	note(!row.Timestamp.Set || !row.InputLength.Set || !row.OutputLength.Set || row.HashIDs == nil, incomplete)
	note(row.Timestamp.Set && c.prev.Set && row.Timestamp.V < c.prev.V, backward)
	if row.Timestamp.Set {
		c.prev = row.Timestamp
	}
	note(row.HashIDs != nil && len(row.HashIDs) != BlockCount(row.InputLength.V, c.forest.blockSize), miscounted)
	var largest uint64
	for _, id := range row.HashIDs {
		largest = max(largest, id)
	}
	note(largest >= 1<<31, large)
	c.maxID = max(c.maxID, largest)
	if c.ranges != nil {
		block := c.ranges.add(row, c.forest, bad)
		note(block >= 0, disagreeing)
		if block >= 0 && c.found[len(rules)-1].Count == 0 {
			c.block = block
		}
	}
	for left := bad; left != 0; left &= left - 1 {
		v := &c.found[bits.TrailingZeros16(uint16(left))]
		if v.Count++; v.Count == 1 {
			v.Line = line
		}
	}
	return bad
}

// Violations returns the rules that are broken, in order.
func (c *Checker) Violations() []Violation {
	out := []Violation{}
	for i, v := range c.found {
		if v.Count == 0 {
			continue
		}
		v.Rule = rules[i]
		v.Text = words.Plural(v.Count, "row") + ": " + ruleTexts[v.Rule]
		if v.Rule == V8 && c.maxID >= 1<<53 {
			v.Text += "; ids of 2^53 or more lose digits in JavaScript and jq"
		}
		if v.Rule == V9 {
			v.Text += fmt.Sprintf("; the first at block %d", c.block)
		}
		out = append(out, v)
	}
	return out
}

// Unchecked returns why it is not known whether the trace follows V4 to V7, or "" if it is known.
func (c *Checker) Unchecked() string {
	if c.forest.full {
		return tooManyIDs(c.forest.max)
	}
	return ""
}

func tooManyIDs(most int) string { return fmt.Sprintf("more than %d distinct ids", most) }

// err returns why stored data was lost.
func (c *Checker) err() error {
	err := c.forest.nodes.Err()
	if c.ranges != nil {
		err = cmp.Or(err, c.ranges.err())
	}
	return err
}

func (c *Checker) close() {
	c.forest.nodes.Close()
	if c.ranges != nil {
		c.ranges.close()
	}
}

// UncheckedRanges returns why it is not known whether the trace follows V9, or "" if it is known or V9 is not checked.
func (c *Checker) UncheckedRanges() string {
	if c.ranges == nil {
		return ""
	}
	return c.ranges.full
}

// strict is Add for a reader that refuses ids without a definite parent and fill. Other rules do not matter to it, because a row out of
// order or a gap in the numbers is not ambiguous.
func (c *Checker) strict(row *Row, line int64) *RowError {
	bad := c.add(row, line) & (repeated | parents | fills | disagreeing)
	if bad == 0 {
		return nil
	}
	rule := rules[bits.TrailingZeros16(uint16(bad))]
	out := fault("hash_ids", "", "the row breaks "+string(rule)+": "+ruleTexts[rule],
		"read without strict to replay it anyway")
	if rule == V9 {
		out.Field, out.Value = "hash_ranges", fmt.Sprintf("block %d", c.block)
	}
	return out
}
