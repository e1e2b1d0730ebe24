// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// An engine has endpoints besides its API, such as one that empties its cache. This file calls them before and after a run.

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// Post is a request that does not come from the trace: POST without a body, to each engine. No figure includes it.
type Post struct {
	When PostTime
	Path string // relative to the base URL without its /v1, such as /reset_prefix_cache; begins with a slash
}

// PostTime says when a Post is sent. Posts of one time are sent in their order.
type PostTime string

// The times. If a Post fails before the end of the run, the run fails; at the end, a failure is a warning.
const (
	BeforeWarmup PostTime = "before" // after the queries to the engine, before the warm-up, if there is one
	AtStart      PostTime = "start"  // after the warm-up, before the schedule
	AtEnd        PostTime = "end"    // when the last request has ended, or the run is interrupted
)

// lastPosts is the maximum duration of the posts at the end of a run.
const lastPosts = time.Minute

// ParsePosts reads posts such as "before=/reset_prefix_cache".
func ParsePosts(texts ...string) (posts []Post, err error) {
	for _, text := range texts {
		when, path, _ := strings.Cut(text, "=")
		p := Post{PostTime(when), path}
		if err := p.check(); err != nil {
			return nil, err
		}
		posts = append(posts, p)
	}
	return posts, nil
}

func (p Post) String() string { return string(p.When) + "=" + p.Path }

func (p Post) check() error {
	switch p.When {
	case BeforeWarmup, AtStart, AtEnd:
	default:
		return errors.New("want WHEN=PATH, where WHEN is before, start or end, such as before=/reset_prefix_cache")
	}
	if u, err := url.ParseRequestURI(p.Path); err != nil || p.Path[0] != '/' || u.RawQuery != "" || strings.HasPrefix(p.Path, "//") {
		return errors.New("want a path that begins with one slash and has no query, such as /reset_prefix_cache")
	}
	return nil
}

// post sends the posts of a time to each engine.
func (e *engines) post(ctx context.Context, posts []Post, when PostTime) error {
	for _, p := range posts {
		if p.When != when {
			continue
		}
		for _, one := range e.all {
			if err := one.client.JSON(ctx, p.Path, nil, send.Body{}, nil); err != nil {
				return fmt.Errorf("engine-post %s: %s: %w", p, mooncake.PublicName(one.url), err)
			}
		}
	}
	return nil
}

// postLast sends the posts at the end, also after an interrupt.
func (e *engines) postLast(ctx context.Context, posts []Post, said *notices) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPosts)
	defer cancel()
	for _, p := range posts { // the next one may succeed even if one fails
		if err := e.post(ctx, []Post{p}, AtEnd); err != nil {
			said.warn("%v", err)
		}
	}
}
