// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

import "maps"

// Counts says what became of spans. The zero Counts is empty.
type Counts struct {
	Inferences  int64 // annotated requests
	Unannotated int64 // requests that nobody annotated: they keep their counts of tokens, and nothing says what they share
	Contents    int64
	Links       int64

	// NoTraceID and NoSpanID are spans that no record can stand for.
	NoTraceID, NoSpanID int64
	// Invalid counts what was left out of records because it is not what the contract says, by attribute. Two names are
	// of fields of the span: "start_time" and "end_time".
	Invalid map[string]int64

	// SampledOut are records that a sample does not have; the counts by kind above are of those that it has.
	SampledOut Kinds
	// Undecided are requests, and prompts of requests, with nothing in their batch by which a sample could choose: they are left out, too, and
	// are not among SampledOut.
	Undecided int64
	// Unlisted are prompts of a hash domain that the trunk list does not know, kept or not.
	Unlisted int64
}

// Kinds counts records by kind.
type Kinds struct{ Inferences, Contents, Links int64 }

// Add adds the counts of other spans.
func (c *Counts) Add(o Counts) {
	c.Inferences += o.Inferences
	c.Unannotated += o.Unannotated
	c.Contents += o.Contents
	c.Links += o.Links
	c.NoTraceID += o.NoTraceID
	c.NoSpanID += o.NoSpanID
	c.SampledOut.Inferences += o.SampledOut.Inferences
	c.SampledOut.Contents += o.SampledOut.Contents
	c.SampledOut.Links += o.SampledOut.Links
	c.Undecided += o.Undecided
	c.Unlisted += o.Unlisted
	if c.Invalid == nil {
		c.Invalid = maps.Clone(o.Invalid)
		return
	}
	for name, n := range o.Invalid {
		c.Invalid[name] += n
	}
}

// invalid counts something that was left out.
func (c *Counts) invalid(name string) {
	if c.Invalid == nil {
		c.Invalid = map[string]int64{}
	}
	c.Invalid[name]++
}
