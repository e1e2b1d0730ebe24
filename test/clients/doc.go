// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package clients tests that the clients of OpenAI and Anthropic, which we did not write, understand the simulated engine.
//
// It is a package of its own because their code is 16 MB, which takes two minutes of a processor to compile for the race detector, and nearly as
// long without it. make lint compiles it without, so these tests go without the detector, too, and it is compiled once. internal/simulator has the
// same endpoints, replies and faults under the detector, with plain requests (TestReplies).
package clients
