// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package gcpace

import (
	"bufio"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetter returns a function that unmaps the pages of the program's file. The start of a program with many packages touches some bytes
// everywhere in it, and the kernel maps the pages around each: 28 MiB. The beginning of a replay does the same once more, to 18 MiB. What
// is needed later is mapped again on access, from the kernel's cache, where it stays. Without /proc, and for a mapping with changes,
// nothing happens.
func forgetter() (forget func()) {
	var file []mapping
	if smaps, err := os.Open("/proc/self/smaps"); err == nil {
		file = unchanged(smaps, reflect.ValueOf(forgetter).Pointer())
		_ = smaps.Close() // it was only read
	}
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
// file's own. These mappings follow one another. Nothing after them is read, because the kernel counts the pages of each mapping that is
// read.
func unchanged(smaps io.Reader, code uintptr) (of []mapping) {
	var m mapping                 // the current one
	readOnly, own := false, false // whether m is of a file and read-only; whether the code's mapping was found
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) < 3:
		case !strings.HasSuffix(fields[0], ":"): // addresses, permissions, offset, device, inode
			file := strings.Join(fields[3:min(len(fields), 5)], " ")
			if own && file != m.file {
				return of
			}
			if file != m.file {
				of = of[:0]
			}
			from, to, _ := strings.Cut(fields[0], "-")
			m = mapping{address(from), address(to), file}
			readOnly = strings.HasPrefix(fields[1], "r-") && !strings.HasSuffix(file, " 0") // inode 0: of no file
			own = own || m.from <= code && code < m.to
		case fields[0] == "Anonymous:" && fields[1] == "0" && readOnly:
			of = append(of, m)
		}
	}
	if !own {
		return nil
	}
	return of
}

func address(hex string) uintptr {
	n, _ := strconv.ParseUint(hex, 16, 64)
	return uintptr(n)
}
