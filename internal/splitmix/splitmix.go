// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package splitmix is the generator SplitMix64 (Steele, Lea and Flood, 2014) as pure functions: for numbers that are derived from other
// numbers and are the same on every machine and in every shard.
package splitmix

// Golden is 2^64 divided by the golden ratio, the step of the generator's Weyl sequence.
const Golden = 0x9e3779b97f4a7c15

// Mix is the generator's finaliser, a bijection on 64 bits in which every input bit reaches every output bit. It sends 0 to 0.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Next is the generator's output after state x: another bijection, which does not map 0 to 0.
func Next(x uint64) uint64 { return Mix(x + Golden) }

// Uniform turns a mixed value into a number in [0, 1).
func Uniform(x uint64) float64 { return float64(x>>11) / (1 << 53) }
