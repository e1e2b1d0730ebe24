// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"container/list"
	"slices"
	"time"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// If a prompt is in log records, the receiver makes a span of it, below the span of its request. The two spans arrive apart and in any order,
// because SDKs send log records and spans in batches of their own. So the first one waits for the other.

// A half waits for the other one for joinWithin, or until more than maxHalves wait, or more than maxHalfIDs ids of blocks and cells with them.
// A half takes up to 1.4 kB, and 8 bytes for each id.
const (
	joinWithin = time.Minute
	maxHalves  = 1 << 14
	maxHalfIDs = 1 << 21
)

// half is a request without its prompt, or a prompt without its request.
type half struct {
	span   mooncake.SpanRef // of the request
	since  time.Time
	tenant string // of the request

	request *journal.Inference // nil: it is a prompt
	prompt  journal.Prompt
	start   int64 // of the prompt's span
}

// waiting has the halves that wait, at most one for each span.
type waiting struct {
	halves map[mooncake.SpanRef]*list.Element
	order  list.List // of *half, oldest first
	ids    int       // of all prompts in it
}

// get returns the half of a span; nil if none waits.
func (w *waiting) get(span mooncake.SpanRef) *half {
	if e := w.halves[span]; e != nil {
		return e.Value.(*half)
	}
	return nil
}

// put adds a half.
func (w *waiting) put(h *half) {
	w.halves[h.span] = w.order.PushBack(h)
	w.ids += idsOf(&h.prompt)
}

// remove removes the half of a span that waits.
func (w *waiting) remove(h *half) {
	w.order.Remove(w.halves[h.span])
	delete(w.halves, h.span)
	w.ids -= idsOf(&h.prompt)
}

// overdue removes and returns the half that waits most, if it began before a time or if too many wait; else nil.
func (w *waiting) overdue(before time.Time) *half {
	e := w.order.Front()
	if e == nil {
		return nil
	}
	h := e.Value.(*half)
	if !h.since.Before(before) && w.order.Len() <= maxHalves && w.ids <= maxHalfIDs {
		return nil
	}
	w.remove(h)
	return h
}

func idsOf(p *journal.Prompt) int { return len(p.HashIDs) + len(p.Chain.Cells) }

// wait stores a half until the other one arrives.
func (c *cacheConnector) wait(h *half, now time.Time) {
	h.since = now
	c.waiting.put(h)
	c.giveUp(now.Add(-joinWithin))
}

// requestHalf returns the half that a request without a prompt is.
func requestHalf(r *journal.Inference, tenant string) *half {
	kept := *r
	kept.Prompt, kept.Tools, kept.Waits, kept.Follows = journal.Prompt{}, journal.ToolIDs{}, journal.Waits{}, nil // the decoder reuses their memory
	return &half{span: r.Span, tenant: tenant, request: &kept}
}

// prompt analyses the request to which a prompt from log records belongs, or stores the prompt until the request arrives. If batches have
// divided the log records of a prompt, the first part is used, because only that one begins where the prompt does.
func (c *cacheConnector) prompt(r *journal.Content, now time.Time) {
	span := mooncake.SpanRef{TraceID: r.Span.TraceID, SpanID: r.Parent}
	if len(r.HashIDs) == 0 && r.Chain.Bytes == 0 { // only the ids of tool calls
		c.ignored[ignoredOther]++
		return
	}
	h := c.waiting.get(span)
	if h != nil && h.request != nil {
		c.waiting.remove(h)
		p := promptOf(h.request, &r.Prompt)
		c.count(h.request, &p, h.tenant, c.result(h.request, &p), now)
		return
	}
	if h != nil || span.IsZero() {
		c.ignored[ignoredPrompt]++ // this part or the other one
	}
	switch {
	case span.IsZero(), h != nil && h.start <= r.Start:
		return
	case h != nil:
		c.waiting.remove(h)
	}
	kept := journal.Prompt{HashIDs: slices.Clone(r.HashIDs), BlockSize: r.BlockSize, Chain: r.Chain}
	kept.Chain.Cells, kept.Chain.Ends = slices.Clone(r.Chain.Cells), nil
	c.wait(&half{span: span, prompt: kept, start: r.Start}, now)
}

// giveUp counts the requests and prompts that have waited since before a time, and forgets them.
func (c *cacheConnector) giveUp(before time.Time) {
	for h := c.waiting.overdue(before); h != nil; h = c.waiting.overdue(before) {
		if h.request != nil {
			c.count(h.request, nil, h.tenant, resultNoPrompt, time.Time{})
		} else {
			c.ignored[ignoredPrompt]++
		}
	}
}
