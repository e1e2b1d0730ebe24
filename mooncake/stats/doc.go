// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package stats measures traces: lengths, arrivals, prefix sharing, sessions, and the hits of prefix caches ([Analyzer], [CacheSim],
// [Predictor], [SessionDetector]). [Compare] describes how two traces differ.
//
// Everything is streamed. Types that remember ids have a limit as an option, and report what they could not decide beyond it.
package stats
