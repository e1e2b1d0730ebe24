// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:generate env GOWORK=off go tool -modfile=../tools/go.mod mdatagen metadata.yaml

// Package connector is the Collector connector "mooncake_cache": annotated inference spans in, metrics out. The metrics show what prefix
// caches of any size would hit on the live traffic, how large the working set is, and which prefixes are shared most. README.md describes
// its configuration and metrics; [stats.Reuse] estimates them.
//
// It reads only keyed hashes, and never sees text.
package connector
