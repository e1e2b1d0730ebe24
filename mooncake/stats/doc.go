// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package stats measures traces: lengths, arrivals, prefix sharing, sessions, and what a prefix cache would have hit ([Analyzer],
// [CacheSim], [Predictor], [SessionDetector]), and says how two traces differ ([Compare]).
//
// Everything here streams. What has to remember ids is bounded by an option and says what it could not tell beyond the bound.
package stats
