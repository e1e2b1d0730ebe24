// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package export writes the results of a run for spreadsheets and table tools: an Excel workbook, and the requests as Parquet.
//
// Both are made from the folder of a run, after the run, so writing them cannot delay a request. Memory does not grow with the run, except
// for the lines of its series and sessions (package page). The package is separate from package report because its libraries are large:
// programs that link a replay get them only by importing it.
package export
