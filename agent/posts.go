// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// An engine has switches beside its API, such as one that empties its cache. This file turns them before and after a run.

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

// Post is a request that is none of the trace's: POST without a body, to each engine. It is in no figure.
type Post struct {
	When PostTime
	Path string // from the base URL on, without its /v1, such as /reset_prefix_cache; it begins with a slash
}

// PostTime is when a Post is sent. Those of one time go in their order.
type PostTime string

// The times. A run whose Post fails before its end is none; at the end a failure is a warning.
const (
	BeforeWarmup PostTime = "before" // behind the questions to the engine, before the warm-up, which may be none
	AtStart      PostTime = "start"  // behind the warm-up, before the schedule
	AtEnd        PostTime = "end"    // when the last request is over, or the run is interrupted
)

// lastPosts bounds the posts at the end of a run.
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
		return errors.New("want WHEN=PATH with a time of before, start or end, such as before=/reset_prefix_cache")
	}
	if u, err := url.ParseRequestURI(p.Path); err != nil || p.Path[0] != '/' || u.RawQuery != "" || strings.HasPrefix(p.Path, "//") {
		return errors.New("want a path that begins with a slash, such as /reset_prefix_cache")
	}
	return nil
}

// post sends what is due at a time, to each engine.
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

// postLast sends what is due at the end, also of a run that was interrupted.
func (e *engines) postLast(ctx context.Context, posts []Post, said *notices) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPosts)
	defer cancel()
	for _, p := range posts { // what one cannot do may be done by the next
		if err := e.post(ctx, []Post{p}, AtEnd); err != nil {
			said.warn("%v", err)
		}
	}
}
