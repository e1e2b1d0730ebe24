// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEnginePosts: the requests of --engine-post are sent before the warm-up, between the warm-up and the schedule, and after the last
// row's request. If the engine refuses one before the schedule, there is no run; a refusal at the end is only a warning.
func TestEnginePosts(t *testing.T) {
	const line = "replay TRACE --url ENGINE --overhead 1 --warmup-requests 2 "
	r := begin(t, aliasTrace, strings.Fields(line+"--engine-post end=/stop_profile --engine-post start=/start_profile --engine-post before=/reset_prefix_cache"))()
	r.good(t)
	want := []string{"POST /reset_prefix_cache after 0", "POST /start_profile after 2", "POST /stop_profile after 6"}
	if diff := cmp.Diff(want, r.posts); diff != "" || len(r.seen) != 6 {
		t.Errorf("%d requests; want −, got +:\n%s", len(r.seen), diff)
	}
	r = begin(t, aliasTrace, strings.Fields(line+"--engine-post end=/nowhere --engine-post end=/stop_profile"))()
	r.good(t)
	if len(r.seen) != 6 || len(r.posts) != 1 || !strings.Contains(r.said, "warning: engine-post end=/nowhere: http://") {
		t.Errorf("%d requests, %q, said:\n%s", len(r.seen), r.posts, r.said)
	}
	for when, rows := range map[string]int{"before": 0, "start": 2} {
		r = begin(t, aliasTrace, strings.Fields(line+"--engine-post "+when+"=/nowhere"))()
		if r.status != exitUsage || len(r.seen) != rows || !strings.Contains(r.said, "engine-post "+when+"=/nowhere: http://") || !strings.Contains(r.said, "404") {
			t.Errorf("%s: status %d, %d requests, said:\n%s", when, r.status, len(r.seen), r.said)
		}
	}
}
