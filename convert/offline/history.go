// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"cmp"
	"slices"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// history is what happened before the traces were compiled.
type history struct {
	step mooncake.Transformation
	lost []mooncake.Dropped // belongs to no trace: the first one that is written has it
	with *capture.Partition // that one
}

// of returns the part of the history that the sidecar of a trace tells.
func (h *history) of(p capture.Partition) history {
	if h.with == nil {
		h.with = &p
	}
	if *h.with != p {
		return history{step: h.step}
	}
	return *h
}

func (h history) complete(meta *mooncake.Meta) {
	meta.Dropped = append(slices.Clone(h.lost), meta.Dropped...)
	meta.Transformations = append([]mooncake.Transformation{h.step}, meta.Transformations...)
}

// completed is a trace whose sidecar also says what happened before it was compiled.
type completed struct {
	capture.TraceWriter
	history
}

// Commit completes the sidecar.
func (w completed) Commit(meta *mooncake.Meta) error {
	m := *meta
	w.complete(&m)
	return w.TraceWriter.Commit(&m)
}

// tally counts what was dropped, by what and reason.
type tally map[[2]string]int64

// add adds a list so many times.
func (t tally) add(list []mooncake.Dropped, times int64) {
	for _, d := range list {
		t[[2]string{d.What, d.Reason}] += d.Count * times
	}
}

// list returns what is above 0, in order.
func (t tally) list() []mooncake.Dropped {
	list := make([]mooncake.Dropped, 0, len(t))
	for key, n := range t {
		if n > 0 {
			list = append(list, mooncake.Dropped{What: key[0], Reason: key[1], Count: n})
		}
	}
	slices.SortFunc(list, func(a, b mooncake.Dropped) int {
		return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}
