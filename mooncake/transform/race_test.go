// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package transform

// manySeeds are fewer where the race detector makes each of them take ten times as long.
const manySeeds = 6
