// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

// This file provides the JSON Schema of summary.json, for programs in other languages. The schema is generated from the Go types.

import _ "embed" // the schema

//go:generate go test -run ^TestSchema$ . -update

//go:embed summary.schema.json
var summarySchema string

// SummarySchema returns the JSON Schema (2020-12) of summary.json. Later versions may add members; [SchemaVersion] changes when one is
// removed, or changes its meaning.
func SummarySchema() string { return summarySchema }
