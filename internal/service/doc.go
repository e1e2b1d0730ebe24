// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package service starts, lists, watches and stops replays by HTTP: what "moonloop agent" serves.
//
// Its interface is HTTP, described by openapi.json; a program that links a replay calls agent.Run. So the package is internal. It knows no
// flags: its caller provides the options that a replay has, and a function that makes a configuration from them.
//
// # A run
//
// A run has an id, which is also its run id in all its files and telemetry. It has a folder of that name, with the files of agent.Run, and
// with run.json, which is the run as the API shows it. Its states:
//
//	starting     the trace is opened, the engine asked or waited for
//	running      requests are sent
//	stopping     somebody has stopped it; requests in flight end, and the report is written
//	finished     the report exists; verdict and exit_status state the result
//	stopped      like finished, for a run that was stopped: the report covers what was sent until then
//	failed       there was no replay; error says why
//	interrupted  the service ended without ending the run; the next service that uses the folder sets this state
//
// # What is bounded
//
// Everything but /healthz, /readyz and /openapi.json needs the service's token. A request names an engine from a list, and either names a
// trace in one folder or contains the trace. The engine's keys, the places of files and the use of memory are settings of the service.
// There are limits for the size of requests, the number of connections, the runs at a time, the runs that are stored, and the bytes on
// disk.
package service
