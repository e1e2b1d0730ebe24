// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import "sync"

// stamps are the arrays of an exchange, without pointers, because a run has tens of thousands of them.
type stamps struct {
	at     []int64
	read   []uint32
	tokens []int32
}

var stampPool sync.Pool

// reserve takes empty arrays for about n chunks from the pool.
func (x *Exchange) reserve(n int) {
	s, ok := stampPool.Get().(*stamps)
	if !ok {
		n = max(16, min(n+2, maxStamps))
		s = &stamps{at: make([]int64, 0, n), read: make([]uint32, 0, n)}
	}
	x.stamps, x.At, x.Read, x.Tokens = s, s.at[:0], s.read[:0], s.tokens[:0]
}

// Release returns the timestamp arrays to the pool. At, Read and Tokens are nil afterwards; the rest stays.
func (x *Exchange) Release() {
	if s := x.stamps; s != nil && cap(x.At) <= maxStamps {
		s.at, s.read = x.At, x.Read
		if x.Tokens != nil {
			s.tokens = x.Tokens
		}
		stampPool.Put(s)
	}
	x.stamps, x.At, x.Read, x.Tokens = nil, nil, nil, nil
}
