// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package transform

// manySeeds are as many as an average is promised over.
const manySeeds = 40
