// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"net/http"
	"strings"
	"testing"
)

func TestInstance(t *testing.T) {
	long := strings.Repeat("é", maxName)
	for _, test := range []struct {
		header, name, want string
		more               http.Header
	}{
		{"", "X-Inference-Pod", "pod", nil},
		{"", "X-Litellm-Model-Id", "pod", nil},
		{"", "X-Inference-Pod", "pod", http.Header{"X-Litellm-Model-Id": {"deployment"}}},
		{"", "Served-By", "", nil},
		{"served-by", "Served-By", "pod", http.Header{"X-Inference-Pod": {"other"}}},
		{"served-by", "X-Inference-Pod", "", nil},
	} {
		h := test.more.Clone()
		if h == nil {
			h = http.Header{}
		}
		h.Set(test.name, "pod")
		if got := (&Config{InstanceHeader: test.header}).instance(h); got != test.want {
			t.Errorf("--instance-header %q, reply %v: %q, want %q", test.header, h, got, test.want)
		}
	}
	if got := (&Config{}).instance(http.Header{"X-Inference-Pod": {long}}); len(got) > maxName || !strings.HasPrefix(long, got) || got == "" {
		t.Errorf("a long name became %d bytes", len(got))
	}
}
