// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"net"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestFreeAddress(t *testing.T) {
	address, err := freeAddress(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatalf("%s is not free: %v", address, err)
	}
	defer l.Close()
	if _, err := freeAddress(t.Context(), address); err == nil {
		t.Errorf("%s is taken, but is reported as free", address)
	}
}
