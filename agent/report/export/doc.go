// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package export writes the results of a run for programs of tables: an Excel workbook, and the requests as Parquet.
//
// Both are made of the folder of a run, after the run, so writing them cannot delay a request. What is held in memory does not grow with
// the run but for the lines of its series and sessions (package page). The package is apart from package report since its libraries are
// large: who links a replay gets them only by importing it.
package export
