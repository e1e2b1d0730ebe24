// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package offline makes traces of telemetry that lies in files: OTLP in JSON lines, as the Collector's file exporter writes
// traces and logs, and the request trace of Dynamo.
//
// The telemetry takes the way that it would have taken through a Collector, by the same code: package annotate turns it into
// annotated spans, package decode turns these into records, which go to a temporary journal, and package capture compiles the
// journal. What comes out is what the Collector would have written, but for the key: under another one the session ids differ,
// and nothing else.
//
// Memory is that of the longest line and of [capture.Compile]; the journal takes a fraction of the files' size on the disk. No text
// gets into it, and none into errors.
package offline
