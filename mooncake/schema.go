// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// This file provides the JSON Schemas of a row and of a sidecar, for programs in other languages. They are generated from the Go types.

import _ "embed" // the schemas

//go:generate go test -run ^TestSchemas$ . -update

//go:embed row.schema.json
var rowSchema string

//go:embed sidecar.schema.json
var sidecarSchema string

// RowSchema returns the JSON Schema (2020-12) of a row as this package writes it: a line of a trace. It does not include what a reader also
// accepts, such as aliases of fields.
func RowSchema() string { return rowSchema }

// SidecarSchema returns the JSON Schema (2020-12) of a trace's sidecar: [Meta].
func SidecarSchema() string { return sidecarSchema }
