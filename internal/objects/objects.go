// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package objects reads and writes the objects of URLs such as s3://bucket/key and gs://bucket/key. It uses the API of S3 for both
// services. For S3, credentials, regions and endpoints come from the same places as for the tools of AWS: the environment, a user's files,
// the role of a machine or a pod. For Google Cloud Storage, the key and the endpoint come from GS_ variables. A URL contains none of these,
// so it can be printed.
//
// An object exists completely or not at all: it appears when its last byte has arrived. A reader that loses its connection continues at
// the same byte, and one that gets fewer bytes than the object has returns an error.
package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// Schemes are the schemes of the URLs, without "://": of S3 and of Google Cloud Storage.
var Schemes = []string{"s3", "gs"}

// IsURL reports whether a name is the URL of an object.
func IsURL(name string) bool {
	scheme, _, found := strings.Cut(name, "://")
	return found && slices.Contains(Schemes, scheme)
}

// address is what a URL names.
type address struct{ scheme, bucket, key string }

// parse takes a URL apart.
func parse(url string) (a address, err error) {
	scheme, rest, _ := strings.Cut(url, "://")
	bucket, key, _ := strings.Cut(rest, "/")
	a = address{scheme, bucket, key}
	switch {
	case !slices.Contains(Schemes, scheme):
		return a, fmt.Errorf("%q is not the URL of an object: want s3://bucket/key or gs://bucket/key", url)
	case bucket == "" || strings.ContainsAny(bucket, "@?#: "):
		return a, fmt.Errorf("%s:// has no bucket, or more than one: want %s://bucket/key; credentials come from the environment", scheme, scheme)
	case strings.ContainsAny(key, "?#"):
		return a, fmt.Errorf("%s://%s: a key with ? or # cannot be named, and options come from the environment", scheme, bucket)
	case s3utils.CheckValidBucketName(bucket) != nil: // which no server has
		return a, fmt.Errorf("%s://%s: %q is not the name of a bucket: it has 3 to 63 letters, digits, dots and hyphens, such as %s://traces/day.jsonl", scheme, bucket, bucket, scheme)
	}
	if err := s3utils.CheckValidObjectNamePrefix(key); err != nil {
		return a, fmt.Errorf("%s://%s/…: %.100q is not a key: one has at most 1,024 bytes of UTF-8", scheme, bucket, key)
	}
	return a, nil
}

func (a address) String() string { return a.scheme + "://" + a.bucket + "/" + a.key }

// Store holds the connections to the services. The zero Store is usable, and safe for concurrent use.
type Store struct {
	mu      sync.Mutex
	clients map[string]*client // by scheme
}

// client returns the client of a URL.
func (s *Store) client(url string) (*client, address, error) {
	a, err := parse(url)
	if err != nil {
		return nil, a, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[a.scheme]; c != nil {
		return c, a, nil
	}
	c, err := connect(a.scheme)
	if err != nil {
		return nil, a, fmt.Errorf("%s: %w", a, err)
	}
	if s.clients == nil {
		s.clients = map[string]*client{}
	}
	s.clients[a.scheme] = c
	return c, a, nil
}

// Close closes all connections; the Store can still be used.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.transport.CloseIdleConnections()
	}
	s.clients = nil
}

// Object is an object in a list.
type Object struct {
	URL  string
	Size int64 // bytes
}

// MaxList bounds a list: a day of one object every five seconds from 60 Collectors.
const MaxList = 1 << 20

// List returns the object with that name, and those in the folder with that name and below it, in the order of their keys. An empty list
// is not an error.
func (s *Store) List(ctx context.Context, url string) (list []Object, err error) {
	c, a, err := s.client(url)
	if err != nil {
		return nil, err
	}
	w := watch(ctx, stall)
	defer w.end()
	folder, pages := strings.TrimSuffix(a.key, "/"), newPages(w)
	for o := range c.ListObjectsIter(pages.context(), a.bucket, minio.ListObjectsOptions{Prefix: folder, Recursive: true}) {
		if err := cmp.Or(o.Err, pages.key(o.Key)); err != nil {
			return nil, c.explain(a, "listed", w.cause(err))
		}
		rest, below := strings.CutPrefix(o.Key, folder)
		if !below || rest != "" && folder != "" && rest[0] != '/' || strings.HasSuffix(o.Key, "/") {
			continue // a folder that a console made, or one whose name only has the same beginning
		}
		if len(list) == MaxList {
			return nil, fmt.Errorf("%s has more than %d objects: name a part of it", a, MaxList)
		}
		list = append(list, Object{address{a.scheme, a.bucket, o.Key}.String(), o.Size})
	}
	if err := w.cause(w.ctx.Err()); err != nil { // the list ends without an error when its context has ended
		return nil, c.explain(a, "listed", err)
	}
	return list, nil
}

// Open opens an object. If it does not exist, the error is [fs.ErrNotExist].
func (s *Store) Open(ctx context.Context, url string) (*Reader, error) {
	c, a, err := s.client(url)
	if err != nil {
		return nil, err
	}
	if a.key == "" || strings.HasSuffix(a.key, "/") {
		return nil, fmt.Errorf("%s is a folder: name an object in it", a)
	}
	r := &Reader{ctx: ctx, client: c, at: a}
	info, err := r.connect()
	if err != nil {
		return nil, c.explain(a, "read", err)
	}
	if info.Size < 0 { // a proxy sends it in chunks; its end could not be told from a cut
		r.disconnect()
		return nil, fmt.Errorf("%s was not read: %s does not say how long it is; is there a proxy before the server that removes Content-Length?", a, c.endpoint)
	}
	r.size, r.etag = info.Size, info.ETag
	return r, nil
}

// Fetch writes an object to a file, which it replaces.
func (s *Store) Fetch(ctx context.Context, url, file string) (err error) {
	r, err := s.Open(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // the caller names it
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// Remove removes an object, if it exists.
func (s *Store) Remove(ctx context.Context, url string) error {
	c, a, err := s.client(url)
	if err != nil {
		return err
	}
	w := watch(ctx, stall)
	defer w.end()
	if err := c.RemoveObject(w.ctx, a.bucket, a.key, minio.RemoveObjectOptions{}); err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchKey {
		return c.explain(a, "removed", w.cause(err))
	}
	return nil
}

// OnDay replaces {today} and {yesterday} in a URL by days in UTC, such as 2027-01-31, so that a nightly command has the same arguments
// each time.
func OnDay(url string, now time.Time) string {
	day := func(t time.Time) string { return t.UTC().Format(time.DateOnly) }
	return strings.NewReplacer("{today}", day(now), "{yesterday}", day(now.UTC().AddDate(0, 0, -1))).Replace(url)
}

// advice says what to do about an error of a service, by its code.
var advice = map[string]string{ //nolint:gosec // codes of errors, and no credentials
	minio.AccessDenied:             "the credentials of the environment do not allow that; without the right to list a bucket, S3 also says so about an object that does not exist",
	"InvalidAccessKeyId":           "the server does not know the access key of the environment",
	"SignatureDoesNotMatch":        "the secret key of the environment is not that of its access key, or the region is another one: set AWS_REGION",
	"AuthorizationHeaderMalformed": "set AWS_REGION to the region of the bucket",
	"PermanentRedirect":            "set AWS_REGION to the region of the bucket",
	"ExpiredToken":                 "export new credentials",
	"RequestTimeTooSkewed":         "set the clock of this machine",
}

// unreachable reports whether an error is one of the network, and not the answer of a server.
func unreachable(err error) bool {
	_, is := errors.AsType[net.Error](err)
	return is
}

// explain converts an error of the library to one for people. It still wraps the error of a context.
func (c *client) explain(a address, done string, err error) error {
	e, _ := errors.AsType[minio.ErrorResponse](err)
	switch {
	case ended(err):
		return fmt.Errorf("%s was not %s: %w", a, done, err)
	case e.Code == minio.NoSuchKey:
		return &fs.PathError{Op: "open", Path: a.String(), Err: fs.ErrNotExist}
	case e.Code == minio.NoSuchBucket:
		return fmt.Errorf("%s was not %s: %s has no bucket %q: create it, or name another one", a, done, c.endpoint, a.bucket)
	case e.Code == minio.PreconditionFailed, e.Code == "ConditionalRequestConflict":
		return &fs.PathError{Op: "create", Path: a.String(), Err: fs.ErrExist}
	case e.Code == "" && unreachable(err):
		return fmt.Errorf("%s was not %s: %s: %s; %s (docs/object-storage.md)", a, done, c.endpoint, short(err), c.reach)
	case e.Code == "":
		return fmt.Errorf("%s was not %s: %s: %s", a, done, c.endpoint, short(err))
	case advice[e.Code] != "":
		return fmt.Errorf("%s was not %s: %s says %s; %s (docs/object-storage.md)", a, done, c.endpoint, short(err), advice[e.Code])
	default:
		return fmt.Errorf("%s was not %s: %s says %s", a, done, c.endpoint, short(err))
	}
}
