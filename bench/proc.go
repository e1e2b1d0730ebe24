// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor times below /proc (USER_HZ, 100 on every Linux that Go runs on).
const tick = 10 * time.Millisecond

// state is one look at a process.
type state struct {
	parent int
	cpu    time.Duration
	rss    int64 // bytes
}

// look reads /proc/PID/stat. The name in it may hold anything, so the fields are counted from its closing bracket.
func look(pid int) (state, bool) {
	text := content("/proc/" + strconv.Itoa(pid) + "/stat")
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 {
		return state{}, false
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(fields[i], 10, 64) // the kernel writes numbers
		return n
	}
	return state{
		parent: int(number(1)), cpu: time.Duration(number(11)+number(12)) * tick,
		rss: number(21) * int64(os.Getpagesize()),
	}, true
}

// tree returns the process and everything that descends from it.
func tree(root int) map[int]state {
	all := make(map[int]state)
	entries, _ := os.ReadDir("/proc") // what could be read is returned
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if s, ok := look(pid); ok {
				all[pid] = s
			}
		}
	}
	ours := make(map[int]state)
	for pid, s := range all {
		for up, hops := pid, 0; hops < 16; up, hops = all[up].parent, hops+1 {
			if up == root {
				ours[pid] = s
				break
			}
		}
	}
	return ours
}
