// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

// This file hands out the JSON Schema of summary.json, for programs in other languages. It is made of the Go types.

import _ "embed" // the schema

//go:generate go test -run ^TestSchema$ . -update

//go:embed summary.schema.json
var summarySchema string

// SummarySchema returns the JSON Schema (2020-12) of summary.json. Members come to it with later versions; [SchemaVersion] changes when
// one goes, or changes its meaning.
func SummarySchema() string { return summarySchema }
