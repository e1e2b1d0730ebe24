// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package policy holds the rules of the repository as tests: what a compiler and a linter do not check, and what
// a reviewer should not have to.
//
// # Rules
//
//   - every Go file starts with the licence header, every package says what it is for;
//   - imports point down the list of rooms (the parts of the repository), and no room imports what it must not know;
//   - the modules that end up in the binary are a committed list (cmd/moonloop/dependencies.txt), so that a new
//     dependency is a visible line of a change; `make generate` writes it;
//   - modules that are released together are used at one version;
//   - every name of an attribute, event or metric is spelled once, in package semconv;
//   - CONTRIBUTING.md names the packages whose tests need data from outside the repository;
//   - the tests that docs/reliability.md names exist;
//   - the Makefile lists the packages that need no race detector;
//   - no file names a place on somebody's machine.
package policy
