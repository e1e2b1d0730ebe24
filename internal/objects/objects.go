// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package objects reads and writes what URLs such as s3://bucket/key name. Credentials, regions and endpoints come from
// where the tools of the clouds find them: the environment, the files of a user, the role of a machine or a pod. A URL has none of them, so
// that it can be printed.
//
// An object is there as a whole or not at all: it appears when its last byte has arrived. A reader that loses its connection goes on where
// it was, and one that gets fewer bytes than the object has returns an error.
package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// Schemes are those of the URLs, without "://". Those of gs are known to be refused with what to do instead: Google's client would make the program half as
// large again.
var Schemes = []string{"s3", "gs"}

// IsURL reports whether a name is that of an object.
func IsURL(name string) bool {
	scheme, _, found := strings.Cut(name, "://")
	return found && (scheme == "s3" || scheme == "gs")
}

// address is what a URL names.
type address struct{ scheme, bucket, key string }

// parse takes a URL apart.
func parse(url string) (a address, err error) {
	scheme, rest, _ := strings.Cut(url, "://")
	bucket, key, _ := strings.Cut(rest, "/")
	a = address{scheme, bucket, key}
	switch {
	case scheme == "gs":
		return a, errors.New("gs:// cannot be used: copy with gcloud storage cp, or put an S3 server such as versitygw or MinIO before the bucket and name s3://bucket/key")
	case scheme != "s3":
		return a, fmt.Errorf("%q is no URL of an object: want s3://bucket/key", url)
	case bucket == "" || strings.ContainsAny(bucket, "@?#: "):
		return a, fmt.Errorf("%s:// has no bucket, or more than one: want %s://bucket/key; credentials come from the environment", scheme, scheme)
	case strings.ContainsAny(key, "?#"):
		return a, fmt.Errorf("%s://%s: a key with ? or # cannot be named, and options come from the environment", scheme, bucket)
	}
	return a, nil
}

func (a address) String() string { return a.scheme + "://" + a.bucket + "/" + a.key }

// Store holds the connections to buckets. The zero Store is usable, and safe for concurrent use.
type Store struct {
	mu      sync.Mutex
	buckets map[address]*blob.Bucket // without a key
}

// bucket returns the bucket of a URL.
func (s *Store) bucket(ctx context.Context, url string) (*blob.Bucket, address, error) {
	a, err := parse(url)
	if err != nil {
		return nil, a, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := address{scheme: a.scheme, bucket: a.bucket}
	if b := s.buckets[at]; b != nil {
		return b, a, nil
	}
	b, err := openBucket(ctx, a.bucket)
	if err != nil {
		return nil, a, fmt.Errorf("%s: %w", a, err)
	}
	if s.buckets == nil {
		s.buckets = map[address]*blob.Bucket{}
	}
	s.buckets[at] = b
	return b, a, nil
}

// Close closes all connections.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, b := range s.buckets {
		errs = append(errs, b.Close())
	}
	s.buckets = nil
	return errors.Join(errs...)
}

// Object is an object in a list.
type Object struct {
	URL  string
	Size int64 // bytes
}

// MaxList bounds a list: a day of one object each five seconds from 60 Collectors.
const MaxList = 1 << 20

// List returns the object of that name, and those in the folder of that name and below it, in the order of their keys. None is no error.
func (s *Store) List(ctx context.Context, url string) (list []Object, err error) {
	b, a, err := s.bucket(ctx, url)
	if err != nil {
		return nil, err
	}
	folder := strings.TrimSuffix(a.key, "/")
	for it := b.List(&blob.ListOptions{Prefix: folder}); ; {
		o, err := it.Next(ctx)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, explain(a, "listed", err)
		}
		rest, below := strings.CutPrefix(o.Key, folder)
		if !below || rest != "" && folder != "" && rest[0] != '/' || o.IsDir || strings.HasSuffix(o.Key, "/") {
			continue // a folder that a console made, or one whose name only begins so
		}
		if len(list) == MaxList {
			return nil, fmt.Errorf("%s has more than %d objects: name a part of it", a, MaxList)
		}
		list = append(list, Object{address{a.scheme, a.bucket, o.Key}.String(), o.Size})
	}
}

// Open opens an object. An error of one that is not there is [fs.ErrNotExist].
func (s *Store) Open(ctx context.Context, url string) (*Reader, error) {
	b, a, err := s.bucket(ctx, url)
	if err != nil {
		return nil, err
	}
	if a.key == "" {
		return nil, fmt.Errorf("%s is a bucket: name an object in it", a)
	}
	r := &Reader{ctx: ctx, bucket: b, at: a}
	if err := r.connect(); err != nil {
		return nil, explain(a, "read", err)
	}
	r.size, r.modified = r.body.Size(), r.body.ModTime()
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

// Put writes a file as an object, which appears when all of it has arrived. Unless it may replace what is there, an object of that name is an error,
// which is [fs.ErrExist], also where it has appeared meanwhile.
func (s *Store) Put(ctx context.Context, url, file string, replace bool) error {
	b, a, err := s.bucket(ctx, url)
	if err != nil {
		return err
	}
	if a.key == "" || strings.HasSuffix(a.key, "/") {
		return fmt.Errorf("%s is a folder: name an object in it", a)
	}
	f, err := os.Open(file) //nolint:gosec // the caller names it
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	// Ended before it is complete, the upload is given up, and the object does not appear.
	if err := b.Upload(ctx, a.key, f, &blob.WriterOptions{ContentType: contentType(a.key), IfNotExist: !replace}); err != nil {
		if ctx.Err() != nil { // of which the library makes a text
			err = context.Cause(ctx)
		}
		return explain(a, "written", err)
	}
	return nil
}

// Remove removes an object, if it is there.
func (s *Store) Remove(ctx context.Context, url string) error {
	b, a, err := s.bucket(ctx, url)
	if err != nil {
		return err
	}
	if err := b.Delete(ctx, a.key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return explain(a, "removed", err)
	}
	return nil
}

// OnDay replaces {today} and {yesterday} in a URL by days in UTC, such as 2027-01-31: a command that runs each night has the same arguments each time.
func OnDay(url string, now time.Time) string {
	day := func(t time.Time) string { return t.UTC().Format(time.DateOnly) }
	return strings.NewReplacer("{today}", day(now), "{yesterday}", day(now.UTC().AddDate(0, 0, -1))).Replace(url)
}

// contentType is what browsers need to know of a file.
func contentType(key string) string {
	for ending, kind := range map[string]string{".html": "text/html; charset=utf-8", ".json": "application/json", ".csv": "text/csv"} {
		if strings.HasSuffix(key, ending) {
			return kind
		}
	}
	return "application/octet-stream"
}

// advice says what to do about an error, by what it is.
var advice = map[gcerrors.ErrorCode]string{
	gcerrors.PermissionDenied: "; the credentials that the environment has may not do that, or there are none: see docs/object-storage.md",
	gcerrors.Unknown:          "; check the credentials, the region and the endpoint of the environment: see docs/object-storage.md",
}

// explain makes an error of the library one for people. A cause that is a context's stays to be found.
func explain(a address, done string, err error) error {
	switch code := gcerrors.Code(err); {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errStalled):
		return fmt.Errorf("%s was not %s: %w", a, done, cmp.Or(cause(err), err))
	case code == gcerrors.NotFound:
		return &fs.PathError{Op: "open", Path: a.String(), Err: fs.ErrNotExist}
	case code == gcerrors.FailedPrecondition, code == gcerrors.AlreadyExists:
		return &fs.PathError{Op: "create", Path: a.String(), Err: fs.ErrExist}
	default:
		return fmt.Errorf("%s was not %s: %s%s", a, done, short(err), advice[code])
	}
}

// cause returns the error of a connection that stalled, if it is that.
func cause(err error) error {
	if errors.Is(err, errStalled) {
		return errStalled
	}
	return nil
}
