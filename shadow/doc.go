// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package shadow replays production against another engine while production runs, a fixed delay behind it.
//
// [Run] follows the journals of a folder, to which Collectors write (package exporter). Its parts, in the direction of the data:
//
//   - The follower reads what is new in the journals, each byte once, and appends each record to its own journal of the window
//     in which the record's span began. A window is a minute by default.
//   - The planner compiles a window when the watermark has passed it: Config.Delay − Config.Window − [Lead] after its end. By then
//     the spans of its requests have ended. capture.Compile compiles the windows of Config.History with it, so that the rows share
//     prefixes with earlier requests, too. The rows of the window are written to a file: they are the plan.
//   - The same prefix has the same id in all windows: see ids.go.
//   - The feeder gives the rows of a plan to a replay (agent.Run), which sends each at its event time + Config.Delay.
//   - The books note what became of each row, and make the report of each window, with the comparison of package study.
//
// # Every row once
//
// A row of production is replayed once, or dropped and counted with a reason. The folder of a shadow has all that this needs: the state
// (how far journals are read, windows are compiled and reported), the plans, the results of each replay (requests.jsonl, written at most a
// second after the end of a request), and the dropped rows. So after a kill, the next process continues. Rows that were due before the kill
// and have no result were in flight: they are dropped as [DropInterrupted], and never sent again. Rows that were due while no process ran
// are dropped as [DropNotRunning]. A process that is asked to end writes the results of all requests first: those in flight are cancelled, and
// those not sent are skipped, so that the next process knows that they did not reach the engine.
//
// # Bounds
//
// The lag of a row is the time from its event time + delay to its dispatch. Rows that would have more than Config.MaxLag are dropped,
// and so are rows above Config.MaxRate. Memory and disk grow with the rows of Config.Delay + Config.History. The results of a replay
// grow until it is renewed, every six hours; results that are older than Config.Keep are removed.
package shadow
