// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package gcpace

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The start of a position-independent program fills tables that are read-only afterwards. They look like the file's own pages, but must
// stay mapped, because their content is not in the file.
func TestUnchanged(t *testing.T) {
	const smaps = `00400000-01a31000 r-xp 00000000 fe:00 77   /bin/moonloop
Rss:               15924 kB
Anonymous:             0 kB
AnonHugePages:         0 kB
01a31000-032d7000 r--p 01631000 fe:00 77   /bin/moonloop
Anonymous:             0 kB
032d7000-0353c000 r--p 02ed7000 fe:00 77   /bin/moonloop
Anonymous:           268 kB
0353c000-0384c000 rw-p 03000000 fe:00 77   /bin/moonloop
Anonymous:             0 kB
0384c000-0584c000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7fb7bfa2e000-7fb7c0000000 r-xp 00000000 fe:00 78   /lib/libc.so.6
Anonymous:             0 kB
7ffd1c835000-7ffd1c837000 r-xp 00000000 00:00 0   [vdso]
Anonymous:             0 kB
`
	got := unchanged(strings.NewReader(smaps), 0x500000)
	want := []mapping{{0x400000, 0x1a31000, "fe:00 77"}, {0x1a31000, 0x32d7000, "fe:00 77"}}
	if !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	if got := unchanged(strings.NewReader(smaps), 0x600000000000); len(got) > 0 {
		t.Errorf("with an address in none of the mappings: got %x", got)
	}
}

// Much of the program is unmapped, and it still runs.
func TestForget(t *testing.T) {
	mapped := func() (kB int) {
		t.Helper()
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Skip(err)
		}
		_, rest, _ := strings.Cut(string(status), "RssFile:")
		if _, err := fmt.Sscanf(rest, "%d kB", &kB); err != nil {
			t.Skip(err)
		}
		return kB
	}
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer smaps.Close()
	if len(unchanged(smaps, reflect.ValueOf(forgetter).Pointer())) == 0 {
		t.Fatal("nothing of the program can be unmapped")
	}
	before := mapped()
	forgetter()()
	if after := mapped(); after >= before {
		t.Errorf("%d kB of files are mapped, %d kB before", after, before)
	}
}
