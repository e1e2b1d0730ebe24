// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package timeslice shortens the time slices that the kernel's scheduler plans for a process that measures time. The setting is for the
// whole process, so only commands use it, and no importable package.
//
// Linux shares a core fairly, by earliest deadline first: a thread's deadline is later the longer its slice is. A thread with a short slice
// therefore runs soon after it wakes, even if another program keeps the core busy, and gets no larger share of the core for it. A load
// generator needs just that: little time, at once.
package timeslice

// Shorten requests the shortest slice for all threads of the process and for those that they start, for as long as it runs. It needs no
// privilege. Kernels before Linux 6.12 ignore the request, and a sandbox may refuse it: the process then runs as it would without.
func Shorten() { shorten() }
