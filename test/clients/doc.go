// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package clients tests that the clients of OpenAI and Anthropic, which we did not write, understand the simulated engine.
//
// It is a package of its own because their code is 16 MB: to compile it for the race detector takes two minutes of a processor, a quarter of
// what all packages take together. So it goes without the detector. internal/simulator has the same endpoints, replies and faults under it, with
// plain requests (TestReplies).
package clients
