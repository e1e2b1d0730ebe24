// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import "sync"

// stamps are the arrays of an exchange, without pointers, because a run has ten thousands of them.
type stamps struct {
	at     []int64
	read   []uint32
	tokens []int32
}

var stampPool sync.Pool

// newStamps returns empty arrays with room for about n chunks.
func newStamps(n int) (at []int64, read []uint32, tokens []int32) {
	if s, ok := stampPool.Get().(*stamps); ok {
		return s.at[:0], s.read[:0], s.tokens[:0]
	}
	n = max(16, min(n+2, maxStamps))
	return make([]int64, 0, n), make([]uint32, 0, n), nil
}

// Release returns the timestamp arrays to the pool. At, Read and Tokens are nil afterwards; the rest stays.
func (x *Exchange) Release() {
	if cap(x.At) > 0 && cap(x.At) <= maxStamps {
		stampPool.Put(&stamps{at: x.At, read: x.Read, tokens: x.Tokens})
	}
	x.At, x.Read, x.Tokens = nil, nil, nil
}
