// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"maps"
	"slices"
	"time"
)

// Figures are the results of a run so far.
type Figures struct {
	stats map[ID]Stat // of those that were measured

	Rows        Rows
	Errors      []Reason // failed rows by class, most frequent first
	Skips       []Reason // skipped rows by reason, most frequent first
	SLO         SLO
	Tokens      Tokens
	Cache       Cache
	Chunks      Chunks
	Connections Connections
	Schedule    Schedule
	Replies     Replies
	Servers     []ServerFigures // of each engine, if there are several, by name
	Classes     []ClassFigures  // of each class, if rows have classes, by name
}

// Replies counts the replies of earlier rows within the prompts that were sent. A reply is counted once for each later prompt of its
// conversation.
type Replies struct {
	Needed  int64 `json:"needed"`
	Carried int64 `json:"carried"` // those for which the replay's own live reply was inserted
	// Invented counts the others by the reason for invented words, the most frequent reason first.
	Invented []Reason `json:"invented,omitempty"`
	// CarriedTokens are the prompt tokens of the live replies that were inserted, InventedTokens those of the invented words.
	CarriedTokens  int64 `json:"carried_tokens"`
	InventedTokens int64 `json:"invented_tokens"`
}

// CarriedShare returns carried ÷ needed tokens, 0 to 1; ok is false if none was needed.
func (r Replies) CarriedShare() (share float64, ok bool) {
	return ratio(r.CarriedTokens, r.CarriedTokens+r.InventedTokens)
}

// Stat returns a figure. ok is false if nothing was measured.
func (f *Figures) Stat(id ID) (s Stat, ok bool) {
	s, ok = f.stats[id]
	return s, ok
}

// All calls yield for each figure that was measured, in the order of the report.
func (f *Figures) All(yield func(ID, Stat) bool) {
	for _, id := range slices.Sorted(maps.Keys(f.stats)) {
		if !yield(id, f.stats[id]) {
			return
		}
	}
}

// Rows counts the rows by outcome: Total = Served + Failed + Cancelled + Skipped + Disconnected.
type Rows struct {
	Total     int64 `json:"total"`
	Served    int64 `json:"served"`
	Failed    int64 `json:"failed"`
	Cancelled int64 `json:"cancelled"`
	Skipped   int64 `json:"skipped"`
	// CutOff counts those of Cancelled that the end of the run cut off (CancelEnd). CutOffMissed counts those of Cancelled that had missed the
	// service level by the time at which they were stopped: whatever would have followed, they are not good.
	CutOff       int64 `json:"cut_off,omitempty"`
	CutOffMissed int64 `json:"cut_off_missed,omitempty"`
	// Disconnected counts the rows whose connections were closed on purpose. They do not count as failures.
	Disconnected int64 `json:"disconnected,omitempty"`
	// Retried counts the rows that the engine may have received more than once (Record.Resent), whatever their outcome. RetriedServed
	// counts those that were served; no latency includes them.
	Retried       int64 `json:"retried"`
	RetriedServed int64 `json:"retried_served"`
	// Resent counts those of Retried whose whole request was sent again because a kept connection died.
	Resent int64 `json:"resent"`
	// Reconnected counts the rows that the engine received once at most, but that took more than one attempt, because the others got no
	// connection. They were late, and no latency includes them.
	Reconnected int64 `json:"reconnected,omitempty"`
}

// Judged returns the number of rows of which it is known whether they meet the service level: those served or failed, and those that were
// stopped when they had missed it.
func (r *Rows) Judged() int64 { return r.Served + r.Failed + r.CutOffMissed }

// Reason is a class of failure or a reason for skipping, with its count and the first message.
type Reason struct {
	Reason  string `json:"reason"`
	Count   int64  `json:"count"`
	Example string `json:"example,omitempty"`
}

// Agreements counts the served rows by how the server's count compares with the row's.
type Agreements struct {
	Equal     int64 `json:"equal"`
	Different int64 `json:"different"`
	Unknown   int64 `json:"unknown"`
}

// DifferentShare returns different ÷ (equal + different), 0 to 1; ok is false if nothing is known.
func (a Agreements) DifferentShare() (share float64, ok bool) {
	return ratio(a.Different, a.Equal+a.Different)
}

// UnknownShare returns unknown ÷ all, 0 to 1; ok is false without rows.
func (a Agreements) UnknownShare() (share float64, ok bool) {
	return ratio(a.Unknown, a.Equal+a.Different+a.Unknown)
}

// Tokens says how far the token counts can be trusted, over served rows.
type Tokens struct {
	Prompt Agreements `json:"prompt"`
	Output Agreements `json:"output"`
	// OutputShort counts the replies with fewer tokens than their body requested, by the server's own count.
	OutputShort int64 `json:"output_short"`
	// Estimated counts the rows whose chunks were counted as output tokens, because the server sent no count.
	Estimated int64 `json:"estimated"`
	// Uncounted counts the rows whose number of output tokens is not known, because the server sent neither a stream nor a count. No figure
	// of output tokens includes them.
	Uncounted int64 `json:"uncounted,omitempty"`
	// PromptEstimated counts the rows whose prompt tokens are those of their body or row, because the server sent no count.
	PromptEstimated int64 `json:"prompt_estimated,omitempty"`
	NoContent       int64 `json:"no_content"` // served without any content
	TooShort        int64 `json:"too_short"`  // rows shorter than the chat template: sent longer than requested
	TailCut         int64 `json:"tail_cut"`   // rows without their last block, to make room for the template
	// Assumed counts the rows of models whose template was not measured; another model's template was assumed.
	Assumed int64 `json:"template_assumed,omitempty"`
	// Embeddings counts the replies without generated tokens. No figure of output tokens includes them.
	Embeddings int64 `json:"embeddings,omitempty"`
}

// Cache compares the prompt tokens that the server reports as cached with those that an infinite block cache would have served.
type Cache struct {
	Reported  int64 `json:"reported_requests"`  // served rows whose reply has cached tokens
	Predicted int64 `json:"predicted_requests"` // served rows with a prediction
	// Refused counts served rows whose reply reports more cached tokens than its prompt has. Reported does not include them.
	Refused int64 `json:"refused_requests,omitempty"`
	// Compared counts the rows that have both values. ComparedCached and ComparedPredicted are the sums of these rows' cached and predicted
	// tokens.
	Compared          int64 `json:"compared_requests,omitempty"`
	ComparedCached    int64 `json:"compared_cached_tokens,omitempty"`
	ComparedPredicted int64 `json:"compared_predicted_tokens,omitempty"`
	// Realisation is ComparedCached ÷ ComparedPredicted: 1 if the server's cache is ideal; negative if unknown.
	Realisation float64 `json:"realisation"`
	// Beyond is Σ cached minus the maximum that earlier rows can have left in a cache of the finest blocks, in tokens over the rows that
	// have both; at least 0. These tokens were cached before the run, or are the chat template's.
	Beyond int64 `json:"beyond_tokens,omitempty"`
	// Equal, Within, Less and More count the rows that have both values by their difference: none; less than a block; the server had at
	// least a block less (evicted, or on another replica); or at least a block more (the chat template's own tokens, or a warm cache).
	// LessTokens and MoreTokens are the sums of these differences.
	Equal      int64 `json:"equal_requests,omitempty"`
	Within     int64 `json:"within_block_requests,omitempty"`
	Less       int64 `json:"less_requests,omitempty"`
	More       int64 `json:"more_requests,omitempty"`
	LessTokens int64 `json:"less_tokens,omitempty"`
	MoreTokens int64 `json:"more_tokens,omitempty"`
	// Block is the size, in tokens, of the blocks that the last prediction assumed.
	Block int64 `json:"block_size,omitempty"`
	// Production compares the same requests with production, as recorded in the trace.
	Production ProductionCache `json:"production,omitzero"`
}

// ProductionCache compares the prompt tokens that the engine of this run had cached with those that production's engine had cached for the
// same requests, over the served rows for which both are known. Zero if the trace does not have them.
type ProductionCache struct {
	Requests    int64 `json:"requests"`
	InputTokens int64 `json:"input_tokens"`      // in this run
	Production  int64 `json:"production_tokens"` // cached in production
	Replay      int64 `json:"replay_tokens"`     // cached in this run
}

// Chunks describes the accuracy of the inter-chunk gaps, over the streamed replies of served rows that were sent once.
type Chunks struct {
	Gaps int64 `json:"gaps"`
	// Coalesced counts the gaps between chunks that were sent separately but arrived in one read. The measured gaps include them (0 or
	// close to it); their true values are unknown.
	Coalesced    int64 `json:"coalesced"`
	KernelStamps int64 `json:"kernel_stamped_requests"`
	Streams      int64 `json:"streams"`
}

// CoalescedShare returns coalesced ÷ gaps, 0 to 1; ok is false without gaps.
func (c Chunks) CoalescedShare() (share float64, ok bool) { return ratio(c.Coalesced, c.Gaps) }

// Connections counts the connections that requests used.
type Connections struct {
	Requests int64 `json:"requests"` // requests that reached the wire
	Reused   int64 `json:"reused"`   // those over a connection that an earlier request had used
	Replays  int64 `json:"replays"`  // kept connections that died during a request, which then used another one
	// WireLate counts the requests whose reply arrived before the time of their last byte had been taken, or before that byte was sent. No
	// figure that starts at the wire includes them.
	WireLate int64 `json:"wire_unknown,omitempty"`
}

// ReuseRatio returns reused ÷ requests, 0 to 1; ok is false without requests.
func (c Connections) ReuseRatio() (share float64, ok bool) { return ratio(c.Reused, c.Requests) }

// Schedule describes how exactly the schedule was followed, over the rows that were dispatched.
type Schedule struct {
	Dispatched int64 `json:"dispatched"`
	Scheduled  int64 `json:"scheduled"` // those with their own scheduled time; lateness covers these
	// Over1, Over10 and Over100 count the scheduled rows that were sent more than this many ms late.
	Over1   int64 `json:"late_over_1ms"`
	Over10  int64 `json:"late_over_10ms"`
	Over100 int64 `json:"late_over_100ms"`
	// CapWaits counts the rows that a concurrency cap held back for more than 1 ms.
	CapWaits int64 `json:"cap_waits"`
	Drift    Drift `json:"drift"` // of the lateness that hiccups do not explain
	// BeforeZero counts the instants before the start of the run's clock that the peaks and windows treat as 0. A correct run has none.
	BeforeZero int64 `json:"instants_before_zero,omitempty"`
	// WindowDiff is the greatest difference, over windows of WindowWidth, between the number of rows that were scheduled in the window and of
	// those that reached the wire in it.
	WindowDiff  int64         `json:"window_max_difference"`
	WindowWidth time.Duration `json:"-"`
	// PeakWidth is the resolution of the peak concurrency, PeakTokensWidth the window of the peak token throughput.
	PeakWidth, PeakTokensWidth time.Duration `json:"-"`
}

// CapWaitShare returns cap waits ÷ dispatched, 0 to 1; ok is false without rows.
func (s Schedule) CapWaitShare() (share float64, ok bool) { return ratio(s.CapWaits, s.Dispatched) }

func ratio(part, whole int64) (float64, bool) {
	if whole == 0 {
		return 0, false
	}
	return float64(part) / float64(whole), true
}
