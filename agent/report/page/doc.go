// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package page renders the results of a replay as one HTML file, and as tables over time and by session.
//
// [Load] reads a run's folder: summary.json and requests.jsonl, or, for a killed run, only requests.jsonl.partial. [Run.Write] writes the
// page. The page needs no network and no other file. A Content-Security-Policy in the page itself forbids every external request.
// [Run.Series] and [Run.Sessions] are the tables, which [Run.SaveSheets] writes as CSV.
//
// # Memory
//
// Load reads the records once, as a stream. The memory for the page does not grow with the run: at most maxBins time bins, maxPoints points
// for each scatter plot (a uniform sample of all requests) and maxSlowest rows for each table. Percentiles come from HDR histograms, whose
// relative error is at most 0.1 % for a whole run and 1 % within one time bin. Those of a line of series.csv are exact, for which 12 bytes
// of each request are kept; there are at most maxSlices lines, and maxSessions of sessions.csv.
//
// # Libraries
//
// The charts are drawn by uPlot 1.6.32 (MIT licence, assets/uplot).
package page
