// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"fmt"
	"testing"
)

func TestParseSessionMode(t *testing.T) {
	for s, want := range map[string]SessionMode{"full": SessionFull, "delta": SessionDelta, "": SessionUnknown} {
		if got, err := ParseSessionMode(s); err != nil || got != want {
			t.Errorf("%q: %s, %v", s, got, err)
		}
	}
	for _, s := range []string{"cumulative", "none", "FULL"} {
		if _, err := ParseSessionMode(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
	if text := fmt.Sprint(SessionMode(9), Evidence(99)); text != "session mode 9 evidence 99" {
		t.Error(text)
	}
	for _, m := range []SessionMode{SessionUnknown, SessionFull, SessionDelta, SessionNone} {
		var back SessionMode
		b, err := m.MarshalText()
		if err == nil {
			err = back.UnmarshalText(b)
		}
		if err != nil || back != m {
			t.Errorf("%s: %s, %v", m, back, err)
		}
	}
}
