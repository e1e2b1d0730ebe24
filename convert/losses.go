// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"slices"

	"github.com/moonloop/moonloop/mooncake"
)

// losses counts what was left out of the trace, by item and reason. The zero losses is empty.
type losses map[[2]string]int64

// maxLosses limits the number of reasons that are counted separately, since reasons include names of columns and keys.
const maxLosses = 256

func (l *losses) add(what, reason string, n int64) {
	if n == 0 {
		return
	}
	if *l == nil {
		*l = losses{}
	}
	key := [2]string{what, reason}
	if _, known := (*l)[key]; !known && len(*l) >= maxLosses {
		key[1] = "more than can be told apart"
	}
	(*l)[key] += n
}

// value counts a value for which a row has no field.
func (l *losses) value(name string) { l.add("values", clip(name)+": a row has no place for it", 1) }

// addAll adds a list this many times.
func (l *losses) addAll(list []mooncake.Dropped, times int64) {
	for _, d := range list {
		l.add(d.What, d.Reason, d.Count*times)
	}
}

// list returns the counts above 0, in order.
func (l losses) list() []mooncake.Dropped {
	var list []mooncake.Dropped
	for key, n := range l {
		if n > 0 {
			list = append(list, mooncake.Dropped{What: key[0], Reason: key[1], Count: n})
		}
	}
	slices.SortFunc(list, func(a, b mooncake.Dropped) int {
		return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}
