// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"slices"

	"github.com/moonloop/moonloop/semconv"
)

// maxReasons is the maximum number of classes: ours are about 20, and status codes come from the server.
const maxReasons = 64

// reasons counts classes; those beyond the maximum count as "_OTHER", OpenTelemetry's name for the rest.
type reasons map[string]*Reason

func (m reasons) add(reason, message string) {
	if m[reason] == nil && len(m) >= maxReasons {
		reason = semconv.ErrorOther
	}
	e := m[reason]
	if e == nil {
		e = &Reason{Reason: reason, Example: message}
		m[reason] = e
	}
	e.Count++
}

func (m reasons) sorted() []Reason {
	list := make([]Reason, 0, len(m))
	for _, e := range m {
		list = append(list, *e)
	}
	slices.SortFunc(list, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}
