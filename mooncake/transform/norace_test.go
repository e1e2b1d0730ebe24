// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package transform

// manySeeds is the number of seeds over which averages are promised.
const manySeeds = 40
