// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package preflight

// This file finds words by the engine's token counts of prompts.

import (
	"cmp"
	"slices"
	"strings"
)

const (
	// MaxProbes is the maximum number of requests that look for words by the engine's token counts, for each model.
	MaxProbes = 64
	// enoughProbed is the number of words that is enough.
	enoughProbed = 32
)

// byCounts returns units of a pool that are one token each, as shown by some token counts of prompts, and an anchor. A prompt of n units
// has n tokens more than an empty one if each is one token.
func (w *words) byCounts(pool []string) (good []string, anchor string, err error) {
	// The tokens around the units: a prompt with a group of units has these and the group's own; one with the group twice has as many more
	// as the group has.
	first := pool[:min(16, len(pool))]
	once := w.cost(anchors[0], first)
	w.around = 2*once - w.cost(anchors[0], slices.Concat(first, first))
	var kinds []kind
	for _, units := range byKind(pool) {
		kinds = append(kinds, kind{units, w.excess(units)})
	}
	slices.SortStableFunc(kinds, kind.compare)
	for _, k := range kinds {
		// The most promising kind gets most of the requests.
		found := w.split(k, w.asked+(MaxProbes-1-w.asked)*2/3)
		good = append(good, found...)
		if len(found) >= enoughProbed && !w.all {
			break
		}
	}
	if len(good) == 0 {
		return nil, "", cmp.Or(w.err, errNoWords)
	}
	anchor = anchors[0]
	if w.cost(anchors[1], first) < once {
		anchor = anchors[1]
	}
	return good, anchor, w.err
}

// cost returns the number of tokens of a prompt of units.
func (w *words) cost(anchor string, units []string) (n int64) {
	if w.err == nil {
		w.asked++
		n, w.err = w.count(anchor + strings.Join(units, ""))
	}
	return n
}

// excess returns the number of tokens of units beyond one each.
func (w *words) excess(units []string) int64 {
	return w.cost(anchors[0], units) - w.around - int64(len(units))
}

// kind is a group of units of one length, with the number of their tokens beyond one each.
type kind struct {
	units []string
	extra int64
}

// bad returns the minimum share of units that are several tokens: no token is shorter than a byte.
func (k kind) bad() float64 {
	return float64(k.extra) / float64(len(k.units)*max(1, len(k.units[0])-1))
}

func (k kind) compare(o kind) int {
	return cmp.Or(cmp.Compare(k.bad(), o.bad()), cmp.Compare(len(o.units), len(k.units)))
}

// split returns the units that are one token each, as far as it finds them before this many requests have been sent in all.
func (w *words) split(k kind, until int) (good []string) {
	const (
		few      = 4
		mixed    = 1. / 16 // a share of bad units at which halves without a bad unit are rare
		hopeless = 5       // number of groups without a good unit after which the search ends
	)
	switch {
	case k.extra == 0:
		return k.units
	// Fewer tokens than words show that words merge, as single letters do.
	case k.extra < 0, k.bad() >= 1, w.asked >= until, k.units[0][0] != ' ':
		return nil
	case k.bad() >= mixed, len(k.units) <= few:
		empty := 0
		for some := range slices.Chunk(k.units, few) {
			if w.asked >= until || empty == hopeless || len(good) >= enoughProbed {
				break
			}
			found := w.checkUnits(some)
			if empty++; len(found) > 0 {
				empty = 0
			}
			good = append(good, found...)
		}
		return good
	}
	half := len(k.units) / 2
	extra := w.excess(k.units[:half])
	parts := []kind{{k.units[:half], extra}, {k.units[half:], k.extra - extra}}
	slices.SortStableFunc(parts, kind.compare)
	for _, part := range parts {
		if len(good) < enoughProbed {
			good = append(good, w.split(part, until)...)
		}
	}
	return good
}

// checkUnits checks a few units in one request: the first one occurs once, each other one five times as often as the one before. So the
// digits of the surplus tokens in base 5 are the surplus tokens of each unit. A unit of five bytes has at most four surplus tokens.
func (w *words) checkUnits(units []string) (good []string) {
	const radix = 5
	var text []string
	for i, times := 0, 1; i < len(units); i, times = i+1, times*radix {
		text = append(text, slices.Repeat(units[i:i+1], times)...)
	}
	extra := w.excess(text)
	for _, unit := range units {
		if extra >= 0 && extra%radix == 0 {
			good = append(good, unit)
		}
		extra /= radix
	}
	return good
}
