// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

// TestShardOfALauncher: auto reads the number that the launcher sets, and nothing else.
func TestShardOfALauncher(t *testing.T) {
	for _, name := range indexVariables {
		t.Setenv(name, "")
	}
	refused := func(text, want string) {
		t.Helper()
		if of, err := parseShard(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", text, of, err, want)
		}
	}
	refused("auto/4", "no launcher says which shard this is: none of JOB_COMPLETION_INDEX, ")
	for i, name := range slices.Backward(indexVariables) { // the first that is set counts
		t.Setenv(name, []string{"3", "2", "1", "0"}[i%4])
		if of, err := parseShard("auto/4"); err != nil || of != [2]int{3 - i%4, 4} {
			t.Errorf("%s: %v, %v", name, of, err)
		}
	}
	for _, index := range []string{"4", "-1", "x"} {
		t.Setenv(indexVariables[0], index)
		refused("auto/4", `JOB_COMPLETION_INDEX is "`+index+`"; indices of 4 shards are 0 to 3`)
	}
	t.Setenv(indexVariables[0], "0")
	refused("auto/0", "")
	refused("auto", "")
	refused("auto/x", "")
	if of, err := parseShard("1/4"); err != nil || of != [2]int{1, 4} { // an explicit index overrides the launcher's
		t.Errorf("1/4: %v, %v", of, err)
	}
}
