// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/collect"
	"github.com/moonloop/moonloop/mooncake"
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
		{"0.0.0.0:4317", true, false, "every network, explicitly"},
		{"[::]:4317", true, false, "every network, explicitly"},
		{"192.0.2.7:4317", true, false, "another machine can reach it"},
		{"collector.example:4317", true, false, "a name can be any address"},
		{":4317", false, true, "every network, by leaving something out"},
		{"4317", false, true, "no address"},
		{"::1:4317", false, true, "host and port cannot be told apart"},
	} {
		notice, err := checkListen("grpc", tc.address, "unencrypted")
		if (notice != "") != tc.notice || (err != nil) != tc.failed {
			t.Errorf("%s (%s): notice %q, error %v", tc.address, tc.because, notice, err)
		}
	}
}

// TestListenHint: an error that keeps a capture from starting says what to do, in flags.
func TestListenHint(t *testing.T) {
	for want, err := range map[string]error{
		"--grpc 127.0.0.1:0":            &collect.ListenError{Protocol: "grpc", Err: errors.New("taken")},
		`--http ""`:                     &collect.ListenError{Protocol: "http", Err: errors.New("taken")},
		"another folder with --journal": fmt.Errorf("%w: taken", collect.ErrJournal),
		"":                              errors.New("taken"),
	} {
		got := listenHint(err)
		hint, _ := errors.AsType[hintError](got)
		if !errors.Is(got, err) || (hint.hint == "") != (want == "") || !strings.Contains(hint.hint, want) {
			t.Errorf("%v: hint %q, want %q", err, hint.hint, want)
		}
	}
}

// A capture that refused everything does not look for the reason in the application's address.
func TestEverythingRefused(t *testing.T) {
	lost := []mooncake.Dropped{{What: "OTLP requests", Reason: "refused by the receiver: too large", Count: 2}}
	if got := why(collect.Counts{}, lost); !strings.Contains(got, "every request of OTLP was refused") {
		t.Error(got)
	}
	if got := why(collect.Counts{Spans: 1}, lost); !strings.Contains(got, "no request to a model was among the 1 span") {
		t.Error(got)
	}
	if got := why(collect.Counts{}, []mooncake.Dropped{{What: "spans", Reason: "no trace id", Count: 2}}); !strings.Contains(got, "no span arrived") {
		t.Error(got)
	}
}
