// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package ranges

import (
	"testing"
)

// TestMapJoins: ranges that go on from one another, in ids and numbers, become one, whatever their order.
func TestMapJoins(t *testing.T) {
	var m Map
	m.Insert(10, 5, 110)
	m.Insert(20, 5, 120)
	m.Insert(15, 5, 115)
	m.Insert(5, 5, 105)
	if m.Len() != 1 || len(m.chunks[0]) != 1 || m.chunks[0][0] != (interval{5, 24, 105}) {
		t.Errorf("%d ranges: %v", m.Len(), m.chunks)
	}
}
