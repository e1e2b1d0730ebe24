// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// TestReplies counts what replaced replies, in rows that were sent.
func TestReplies(t *testing.T) {
	a := NewAggregate(Options{})
	for _, r := range []Record{
		{Outcome: Served, Sent: true, Replies: []string{"", "late"}, Carried: 40, Invented: 10},
		{Outcome: Failed, Sent: true, Replies: []string{"late"}, Invented: 10},
		{Outcome: Served, Sent: true, Replies: []string{"failed"}, Invented: 10},
		{Outcome: Served, Sent: true},
		{Outcome: Skipped, Replies: []string{"late"}, Invented: 10},
	} {
		r.Row, r.Exchange.Usage, r.Predicted = new(mooncake.Row), send.NoUsage, send.Unknown
		a.Add(&r)
	}
	got := a.Figures().Replies
	want := Replies{Needed: 4, Carried: 1, Invented: []Reason{{Reason: "late", Count: 2}, {Reason: "failed", Count: 1}}, CarriedTokens: 40, InventedTokens: 30}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if share, ok := got.CarriedShare(); !ok || share != 40./70 {
		t.Errorf("share %v, %v", share, ok)
	}
	if _, ok := (Replies{}).CarriedShare(); ok {
		t.Error("a share of nothing")
	}
}

// TestCacheByRequest compares each request's cached tokens with those predicted, by block.
func TestCacheByRequest(t *testing.T) {
	a := NewAggregate(Options{})
	for _, cached := range []int64{64, 64, 63, 49, 79, 48, 0, 80, 500} {
		a.Add(&Record{
			Outcome: Served, Sent: true, Row: new(mooncake.Row), Predicted: 64, Finest: 70, Block: 16,
			Exchange: send.Exchange{Usage: send.Usage{Prompt: 600, Completion: 1, Cached: cached, Reasoning: send.Unknown}},
		})
	}
	c := a.Figures().Cache
	got := [...]int64{c.Equal, c.Within, c.Less, c.More, c.LessTokens, c.MoreTokens, c.Block}
	if want := [...]int64{2, 3, 2, 2, 16 + 64, 16 + 436, 16}; got != want {
		t.Errorf("equal, within, less, more, tokens less and more, block: %v, want %v", got, want)
	}
}
