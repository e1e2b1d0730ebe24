// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package clients tests that the clients of OpenAI and Anthropic, which we did not write, understand the simulated engine.
//
// It is a package of its own because their code is 16 MB, which takes more than a minute of a processor to compile. make lint compiles it without
// the race detector, so these tests go without, too, and it is compiled once. internal/simulator has the same endpoints, replies and faults under
// the detector, with plain requests (TestReplies).
package clients
