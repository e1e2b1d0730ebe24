// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package transform

// manySeeds is smaller here, because the race detector makes each seed take ten times as long.
const manySeeds = 6
