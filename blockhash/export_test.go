// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

// SetCellSize makes a new hasher use cells of another size than the project's.
func (h *Hasher) SetCellSize(n int) {
	h.size = n
	h.Reset()
}

// SetCellSize makes empty borders take cells of another size than the project's.
func (b *Borders) SetCellSize(n int) { b.size = n }
