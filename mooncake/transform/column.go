// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

// column is a list that grows without being moved: otherwise the data of ten million rows would be copied several times.
type column[T any] struct {
	chunks [][]T
	n      int
}

const columnEach = 1 << 12

func (c *column[T]) at(i uint32) *T { return &c.chunks[i/columnEach][i%columnEach] }

func (c *column[T]) add(v T) {
	if c.n%columnEach == 0 {
		c.chunks = append(c.chunks, make([]T, columnEach))
	}
	*c.at(uint32(c.n)) = v //nolint:gosec // bounded by maxIndexed
	c.n++
}
