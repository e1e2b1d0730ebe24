// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package service starts, lists, watches and stops replays by HTTP: what "moonloop agent" serves.
//
// Its interface is HTTP, and openapi.json describes it; a program that links a replay calls agent.Run. So the package is internal,
// and knows no flags: its caller says which options a replay has, and makes a configuration of them.
//
// # A run
//
// A run has an id, which is also its run id in every artefact, and a folder of that name with what agent.Run writes and run.json,
// which is the run as the API shows it. Its states:
//
//	starting     the trace is opened, the engine asked or waited for
//	running      requests go out
//	stopping     somebody has stopped it; requests in flight end, and the report is written
//	finished     the report is there; verdict and exit_status say how it went
//	stopped      the same of a run that was stopped: the report covers what was sent until then
//	failed       there was no replay; error says why
//	interrupted  the service ended without ending the run: found by the next one that has the folder
//
// # What is bounded
//
// Who can reach the service needs its token for everything but /healthz, /readyz and /openapi.json. A request names an engine of a list,
// and a trace in one folder, or brings the trace along. Keys for the engine, files and memory are the service's own settings. Each
// request, the number of connections, of runs at once and of runs that are kept, and the bytes on disk have a limit.
package service
