// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"cmp"
	"strings"

	"github.com/moonloop/moonloop/genai"
)

// Reason is why a part of the telemetry is not in an annotation.
type Reason string

// The reasons. The last two are for callers of [Annotator.Logs] that do not use all of its results.
const (
	ReasonPromptGaps      Reason = "prompt_gaps"          // a part of the prompt before its end is missing: no cells
	ReasonPromptTextless  Reason = "prompt_textless"      // messages without text: the producer records none, or redacts it
	ReasonHashesPartial   Reason = "hashes_partial"       // not all of an engine's hashes could be read
	ReasonHashesBlockSize Reason = "hashes_blocksize"     // an engine's blocks are coarser than ours, or do not divide them
	ReasonHashesLength    Reason = "hashes_length"        // an engine's hashes do not fit the number of tokens
	ReasonUsageDoubtful   Reason = "usage_doubtful"       // the producer invents token counts, which are removed from the span
	ReasonUsageEstimate   Reason = "usage_estimate"       // the output can only be estimated: not written as usage
	ReasonReplyPartial    Reason = "reply_partial"        // a reply to a whole prompt, but incomplete, or one of several
	ReasonReplyAlone      Reason = "reply_without_prompt" // a reply in log records whose prompt came in another batch
	ReasonToolIDs         Reason = "tool_ids"             // ids of tool calls beyond the maximum of a request, or too long
	ReasonLogNoSpan       Reason = "log_no_span"          // a prompt in a log record that names no span
	ReasonLogNoTime       Reason = "log_no_time"          // a request in a log record without any time
	ReasonLogOther        Reason = "log_other"            // another log record, if no pipeline takes log records
	ReasonNoPipeline      Reason = "no_pipeline"          // a span made from log records, if no pipeline takes spans
)

// reasons lists every reason, in the order of declaration.
var reasons = []Reason{
	ReasonPromptGaps, ReasonPromptTextless, ReasonHashesPartial, ReasonHashesBlockSize, ReasonHashesLength, ReasonUsageDoubtful, ReasonUsageEstimate,
	ReasonReplyPartial, ReasonReplyAlone, ReasonToolIDs, ReasonLogNoSpan, ReasonLogNoTime, ReasonLogOther, ReasonNoPipeline,
}

// Words returns what the reason concerns, and what is the matter with it, for people: such as "token counts" and "estimate".
func (r Reason) Words() (what, why string) {
	switch r {
	case ReasonToolIDs:
		return "ids of tool calls", "too many, or too long"
	case ReasonLogNoSpan:
		return "log records", "a prompt without the ids of its span"
	case ReasonLogNoTime:
		return "log records", "a request without a time"
	default:
		kind, why, _ := strings.Cut(string(r), "_")
		what = map[string]string{"prompt": "prompts", "hashes": "hash ids", "usage": "token counts", "reply": "replies", "log": "log records"}[kind]
		return cmp.Or(what, kind), strings.ReplaceAll(why, "_", " ")
	}
}

// Counts counts what was seen and done. The zero Counts is empty and ready.
type Counts struct {
	Spans     int64 // seen
	Annotated int64 // those annotated before, by another receiver or by a replay; they are not read again

	// Dialects counts the spans of GenAI telemetry, of all kinds, by dialect.
	Dialects map[genai.Dialect]int64
	// Identities counts the annotated inference spans by identity, including those made from log records.
	Identities map[string]int64
	Sessions   int64 // spans to which a keyed hash of their session id was added

	WithoutTokens int64 // inference spans annotated now that lack a count of input or of output tokens
	Completed     int64 // those whose input or output excluded cached or reasoning tokens: these were added
	Truncated     int64 // prompts of which only the beginning was recorded

	Logs          int64 // log records seen
	AnnotatedLogs int64 // those annotated before; they are not read again
	ContentLogs   int64 // those with content of a span
	RequestLogs   int64 // those that are a request each
	Carriers      int64 // spans made from the content, one for all messages of a span
	RequestSpans  int64 // spans made from the requests

	Points int64 // data points of metrics seen

	Dropped map[Reason]int64
	// Removed counts removed values by their names. Names without a rule are "other".
	Removed map[string]int64
}

// Add adds other to c.
func (c *Counts) Add(other Counts) {
	c.Spans += other.Spans
	c.Annotated += other.Annotated
	c.Sessions += other.Sessions
	c.WithoutTokens += other.WithoutTokens
	c.Completed += other.Completed
	c.Truncated += other.Truncated
	c.Points += other.Points
	c.Logs += other.Logs
	c.AnnotatedLogs += other.AnnotatedLogs
	c.ContentLogs += other.ContentLogs
	c.RequestLogs += other.RequestLogs
	c.Carriers += other.Carriers
	c.RequestSpans += other.RequestSpans
	merge(&c.Dialects, other.Dialects)
	merge(&c.Identities, other.Identities)
	merge(&c.Dropped, other.Dropped)
	merge(&c.Removed, other.Removed)
}

// OtherLogs returns the number of log records that do not concern requests.
func (c *Counts) OtherLogs() int64 { return c.Logs - c.AnnotatedLogs - c.ContentLogs - c.RequestLogs }

// Drop counts n dropped items under their reason.
func (c *Counts) Drop(why Reason, n int64) {
	if n > 0 {
		count(&c.Dropped, why, n)
	}
}

func merge[K comparable](to *map[K]int64, from map[K]int64) {
	for key, n := range from {
		count(to, key, n)
	}
}

func count[K comparable](in *map[K]int64, key K, n int64) {
	if *in == nil {
		*in = map[K]int64{}
	}
	(*in)[key] += n
}
