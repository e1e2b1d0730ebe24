// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package live shows a replay under way on a terminal: its position, load, latencies and lateness of the last seconds as
// numbers and sparklines, cache hits, errors, and what the verdict would be. It draws in place, in eleven lines, and leaves
// nothing behind.
package live
