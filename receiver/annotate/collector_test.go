// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReasons: each reason is among those that metrics have from the start.
func TestReasons(t *testing.T) {
	source, err := os.ReadFile("counts.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []Reason
	for _, match := range regexp.MustCompile(`(?m)^\tReason\w+ +Reason = "(\w+)"`).FindAllSubmatch(source, -1) {
		declared = append(declared, Reason(match[1]))
	}
	if diff := cmp.Diff(declared, reasons); diff != "" {
		t.Errorf("-declared +from the start:\n%s", diff)
	}
}
