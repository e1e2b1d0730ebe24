// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"testing"
)

func TestCheckListen(t *testing.T) {
	for _, tc := range []struct {
		address        string
		notice, failed bool
		because        string
	}{
		{"127.0.0.1:4317", false, false, "the default"},
		{"127.8.9.1:0", false, false, "all of 127/8 is this machine"},
		{"[::1]:4317", false, false, "this machine"},
		{"LOCALHOST:4317", false, false, "this machine by name"},
		{"0.0.0.0:4317", true, false, "every network, and said so"},
		{"[::]:4317", true, false, "every network, and said so"},
		{"192.0.2.7:4317", true, false, "another machine can reach it"},
		{"collector.example:4317", true, false, "a name can be any address"},
		{":4317", false, true, "every network, by leaving something out"},
		{"4317", false, true, "no address"},
		{"::1:4317", false, true, "cannot be told apart"},
	} {
		notice, err := checkListen("grpc", tc.address, "unencrypted")
		if (notice != "") != tc.notice || (err != nil) != tc.failed {
			t.Errorf("%s (%s): notice %q, error %v", tc.address, tc.because, notice, err)
		}
	}
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
		t.Errorf("%s is taken, and counts as free", address)
	}
}
