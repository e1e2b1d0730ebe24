// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

import "maps"

// Counts counts spans by what happened to them. The zero Counts is empty.
type Counts struct {
	Inferences  int64 // annotated requests
	Unannotated int64 // requests that were not annotated: their token counts are kept, and what they share is unknown
	Contents    int64
	Links       int64

	// NoTraceID and NoSpanID count spans that cannot become a record.
	NoTraceID, NoSpanID int64
	// Invalid counts values that were left out of records because they violate the contract, by attribute. Two names are fields of the
	// span: "start_time" and "end_time".
	Invalid map[string]int64

	// SampledOut counts records outside the sample; the counts by kind above are of those in it.
	SampledOut Kinds
	// Undecided counts requests, and prompts of requests, without anything in their batch by which a sample could decide: they are left
	// out, too, and not included in SampledOut.
	Undecided int64
	// Unlisted counts prompts of a hash domain that the trunk list does not have, kept or not.
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

// invalid counts a value that was left out.
func (c *Counts) invalid(name string) {
	if c.Invalid == nil {
		c.Invalid = map[string]int64{}
	}
	c.Invalid[name]++
}

// WhyInvalid says of a name in Counts.Invalid why its values were left out, for people.
func WhyInvalid(name string) string { return name + " is not what the convention says" }
