// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package objects

// This file ends lists that would never end. A server sends a list in pages, and says with each page whether there is another one. The
// library asks for the next page as long as a server says so.

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
)

const (
	// maxPages is the maximum number of pages of a list. At 1,000 keys a page, as S3 has them, MaxList objects are on a quarter of that;
	// the others are for keys that only have the same beginning, and for pages that are not full.
	maxPages = 4096
	// maxEmpty is the maximum number of pages without a key in a row. There are such pages where many objects were deleted.
	maxEmpty = 1000
	// maxPage is the maximum size of a page, in bytes. A thousand of the longest keys are a quarter of that.
	maxPage = 16 << 20
)

// pages are the pages of a list so far.
type pages struct {
	watch  *watcher // its end is the end of the list
	count  int
	empty  int                        // pages without a key, since the last key
	tokens map[[sha256.Size]byte]bool // of the requests that were answered
	first  map[[sha256.Size]byte]bool // keys with which pages begin
}

// pagesKey is the key of the pages in the context of a list.
type pagesKey struct{}

func newPages(w *watcher) *pages {
	return &pages{watch: w, tokens: map[[sha256.Size]byte]bool{}, first: map[[sha256.Size]byte]bool{}}
}

// context returns the context for the requests of the list.
func (p *pages) context() context.Context { return context.WithValue(p.watch.ctx, pagesKey{}, p) }

// ask checks a request for a page.
func (p *pages) ask(token [sha256.Size]byte) error {
	switch {
	case p.tokens[token]:
		return errors.New("the server lists in circles: it sent a continuation token for the second time")
	case p.empty > maxEmpty:
		return fmt.Errorf("the list does not end: %d pages in a row have no key", p.empty)
	case p.count == maxPages:
		return fmt.Errorf("the list does not end after %d pages: name a part of it", maxPages)
	}
	return nil
}

// came notes that a page has come.
func (p *pages) came(token [sha256.Size]byte) {
	p.tokens[token] = true
	p.count++
	p.empty++
	p.watch.alive()
}

// key notes a key of the page that came last.
func (p *pages) key(key string) error {
	if p.empty > 0 { // it is the first one of the page
		first := sha256.Sum256([]byte(key))
		if p.first[first] {
			return errors.New("the server lists in circles: two pages begin with the same key")
		}
		p.first[first] = true
	}
	p.empty = 0
	p.watch.alive()
	return nil
}

// pager is a transport that checks the requests of lists. If a list must end, it ends the context of the list: after another error, the
// library would try again.
type pager struct{ *http.Transport }

func (t pager) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	p, _ := r.Context().Value(pagesKey{}).(*pages)
	if p == nil || !query.Has("prefix") { // not a page of a list, but the region of the bucket, for example
		return t.Transport.RoundTrip(r)
	}
	token := sha256.Sum256([]byte(query.Get("continuation-token") + query.Get("marker"))) // a list of version 1 has markers
	if err := p.ask(token); err != nil {
		p.watch.cancel(err)
		return nil, err
	}
	resp, err := t.Transport.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusOK {
		p.came(token)
		resp.Body = &page{resp.Body, p.watch, maxPage}
	}
	return resp, err
}

// page is the body of a page, with an end.
type page struct {
	io.ReadCloser
	watch *watcher
	left  int
}

func (b *page) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		err = fmt.Errorf("a page of the list has more than %d MiB", maxPage>>20)
		b.watch.cancel(err)
	}
	return n, err
}
