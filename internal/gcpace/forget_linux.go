// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package gcpace

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"reflect"

	"golang.org/x/sys/unix"
)

// forgetter returns a function that unmaps the pages of the program's file. The start of a program with many packages touches some bytes
// everywhere in it, and the kernel maps the pages around each: 28 MiB. The beginning of a replay does the same once more, to 18 MiB. What
// is needed later is mapped again on access, from the kernel's cache, where it stays. Without /proc, and for a mapping with changes,
// nothing happens.
func forgetter() (forget func()) {
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return func() {}
	}
	file := unchanged(text, reflect.ValueOf(forgetter).Pointer())
	return func() {
		for _, m := range file {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED)
		}
	}
}

// mapping is a part of a process's memory.
type mapping struct {
	from, to uintptr
	file     string // device and inode
}

// unchanged returns the mappings of the file that contains the code at an address, if they cannot be written and all their pages are the
// file's own.
func unchanged(smaps []byte, code uintptr) (of []mapping) {
	var (
		m    mapping
		own  string // the file
		all  []mapping
		here bool // m has only the file's pages
	)
	for lines := bufio.NewScanner(bytes.NewReader(smaps)); lines.Scan(); {
		line := lines.Text()
		var (
			from, to                     uintptr
			perms, offset, device, inode string
			kB                           int
		)
		if n, _ := fmt.Sscanf(line, "%x-%x %s %s %s %s", &from, &to, &perms, &offset, &device, &inode); n == 6 {
			m, here = mapping{from, to, device + " " + inode}, inode != "0" && perms[:2] == "r-"
			if m.from <= code && code < m.to {
				own = m.file
			}
			continue
		}
		if n, _ := fmt.Sscanf(line, "Anonymous: %d kB", &kB); n == 1 && kB == 0 && here {
			all = append(all, m)
		}
	}
	for _, m := range all {
		if m.file == own {
			of = append(of, m)
		}
	}
	return of
}
