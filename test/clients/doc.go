// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package clients tests that the clients of OpenAI and Anthropic, which we did not write, understand the simulated engine.
//
// It is a package of its own because the code of the clients is 16 MB, which takes more than a minute of CPU time to compile. make lint
// compiles that code without the race detector. These tests run without the detector, too, so that the code is compiled only once.
// internal/simulator tests the same endpoints, replies and faults with the detector, by plain requests (TestReplies).
package clients
