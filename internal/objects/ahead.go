// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"context"
	"io"
)

const (
	// ahead is the number of objects that are fetched before they are opened: a store answers after tens of milliseconds, and a Collector
	// writes an object every five seconds.
	ahead = 8
	// small is the maximum size of an object that is fetched ahead, in bytes; together they use at most 32 MiB.
	small = 4 << 20
)

// Ahead opens objects in a known order.
type Ahead struct {
	ctx   context.Context //nolint:containedctx // of the caller, for the fetches
	store *Store
	next  map[string][]string // by name: the objects after it
	come  map[string]chan fetched
}

type fetched struct {
	content []byte
	err     error
}

// Ahead returns an opener for the objects of these URLs, which should be opened in this order, one after the other. Names that are not
// URLs are left out.
func (s *Store) Ahead(ctx context.Context, names []string) *Ahead {
	a := &Ahead{ctx: ctx, store: s, next: map[string][]string{}, come: map[string]chan fetched{}}
	var urls []string
	for _, name := range names {
		if IsURL(name) {
			urls = append(urls, name)
		}
	}
	for i, url := range urls {
		a.next[url] = urls[i+1 : min(i+1+ahead, len(urls))]
	}
	return a
}

// Open opens an object, and begins to fetch the next ones. It is not safe for concurrent use.
func (a *Ahead) Open(url string) (io.ReadCloser, error) {
	for _, next := range a.next[url] {
		if a.come[next] == nil {
			come := make(chan fetched, 1)
			a.come[next] = come
			go func() { come <- a.fetch(next) }()
		}
	}
	come := a.come[url]
	if come == nil {
		return a.store.Open(a.ctx, url)
	}
	delete(a.come, url)
	switch got := <-come; {
	case got.err != nil:
		return nil, got.err
	case got.content != nil:
		return io.NopCloser(bytes.NewReader(got.content)), nil
	}
	return a.store.Open(a.ctx, url)
}

// fetch reads a small object. The content of a large one is nil.
func (a *Ahead) fetch(url string) (f fetched) {
	r, err := a.store.Open(a.ctx, url)
	if err != nil {
		return fetched{err: err}
	}
	defer func() { _ = r.Close() }() // it was only read
	if r.Size() > small {
		return f
	}
	content := make([]byte, r.Size())
	_, err = io.ReadFull(r, content)
	return fetched{content, err}
}
