// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"context"
	"io"
	"sync"
)

const (
	// ahead is the number of objects that are fetched before they are opened: a store answers after tens of milliseconds, and a Collector
	// writes an object every five seconds.
	ahead = 8
	// small is the maximum size of an object that is fetched ahead, in bytes; together, those ahead of one use at most 32 MiB.
	small = 4 << 20
)

// Ahead opens objects in a known order. It is safe for concurrent use.
type Ahead struct {
	ctx   context.Context //nolint:containedctx // of the caller, for the fetches
	store *Store
	next  map[string][]string // by name: the objects after it
	mutex sync.Mutex
	come  map[string]chan fetched // by name, if it is being fetched, and nil if it was opened
}

type fetched struct {
	content []byte
	err     error
}

// Ahead returns an opener for the objects of these URLs, which should be opened in this order; or several parts of the list at once, each in
// this order. Names that are not URLs are left out.
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

// Open opens an object, and begins to fetch the next ones.
func (a *Ahead) Open(url string) (io.ReadCloser, error) {
	come := a.begin(url)
	if come == nil {
		return a.store.Open(a.ctx, url)
	}
	switch got := <-come; {
	case got.err != nil:
		return nil, got.err
	case got.content != nil:
		return io.NopCloser(bytes.NewReader(got.content)), nil
	}
	return a.store.Open(a.ctx, url)
}

// begin begins to fetch the objects after one, and returns what was fetched of this one; nil if nothing was.
func (a *Ahead) begin(url string) <-chan fetched {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for _, next := range a.next[url] {
		if _, begun := a.come[next]; !begun {
			come := make(chan fetched, 1)
			a.come[next] = come
			go func() { come <- a.fetch(next) }()
		}
	}
	come := a.come[url]
	a.come[url] = nil
	return come
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
