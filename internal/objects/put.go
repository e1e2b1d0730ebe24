// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package objects

// This file writes objects. A large one is uploaded in parts. The library can do that, too, but it does not apply the condition that
// nothing is replaced to the whole object.

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"
)

const (
	// patience is how long an upload may read nothing from its file: a server may need a while to join many parts.
	patience = 5 * time.Minute
	// single is the maximum size of an object that is uploaded to S3 in one request, in bytes.
	single = 16 << 20
	// together is the number of parts of an object that are uploaded concurrently.
	together = 4
	// cleaning is the time limit for the removal of parts.
	cleaning = 10 * time.Second
)

// Put writes a file as an object, which appears when all of it has arrived. Unless the existing object may be replaced, an object with
// that name is the error [fs.ErrExist], also if it has appeared in the meantime.
func (s *Store) Put(ctx context.Context, url, file string, replace bool) error {
	c, a, err := s.client(url)
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
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	w := watch(ctx, patience)
	defer w.end()
	if err := c.put(w.ctx, a, &watched{f, w}, info.Size(), replace); err != nil {
		return c.explain(a, "written", w.cause(err))
	}
	return nil
}

// put uploads a file.
func (c *client) put(ctx context.Context, a address, f io.ReaderAt, size int64, replace bool) error {
	opt := minio.PutObjectOptions{ContentType: contentType(a.key), DisableContentSha256: true}
	if a.scheme == "gs" { // Google's server knows neither the condition nor all that an upload in parts needs
		if !replace {
			switch _, err := c.StatObject(ctx, a.bucket, a.key, minio.StatObjectOptions{}); {
			case err == nil:
				return minio.ErrorResponse{Code: minio.PreconditionFailed}
			case minio.ToErrorResponse(err).Code != minio.NoSuchKey:
				return err
			}
		}
		return c.putWhole(ctx, a, f, size, opt)
	}
	if !replace {
		opt.SetMatchETagExcept("*")
	}
	if size > single {
		return c.putParts(ctx, a, f, size, opt)
	}
	return c.putWhole(ctx, a, f, size, opt)
}

// putWhole uploads a file in one request.
func (c *client) putWhole(ctx context.Context, a address, f io.ReaderAt, size int64, opt minio.PutObjectOptions) error {
	body := io.NewSectionReader(f, 0, size)
	sum, err := digest(body)
	if err != nil {
		return err
	}
	_, err = c.PutObject(ctx, a.bucket, a.key, body, size, "", sum, opt)
	return err
}

// digest returns the SHA-256 of the data, which the server compares with what has arrived, and seeks back to the beginning.
func digest(body io.ReadSeeker) (string, error) {
	hash := sha256.New()
	if _, err := io.Copy(hash, body); err != nil {
		return "", err
	}
	_, err := body.Seek(0, io.SeekStart)
	return hex.EncodeToString(hash.Sum(nil)), err
}

// putParts uploads a file in parts. If a part fails, the upload is aborted, and the object does not appear.
func (c *client) putParts(ctx context.Context, a address, f io.ReaderAt, size int64, opt minio.PutObjectOptions) (err error) {
	count, partSize, _, err := minio.OptimalPartInfo(size, single)
	if err != nil {
		return err
	}
	id, err := c.NewMultipartUpload(ctx, a.bucket, a.key, minio.PutObjectOptions{ContentType: opt.ContentType})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
			defer cancel()
			_ = c.AbortMultipartUpload(ctx, a.bucket, a.key, id) // the bucket's rules must remove what remains
		}
	}()
	parts := make([]minio.CompletePart, count)
	g, parallel := errgroup.WithContext(ctx)
	g.SetLimit(together)
	for i := range parts {
		g.Go(func() error {
			if parallel.Err() != nil {
				return parallel.Err()
			}
			offset := int64(i) * partSize
			n := min(partSize, size-offset)
			body := io.NewSectionReader(f, offset, n)
			sum, err := digest(body)
			if err != nil {
				return err
			}
			part, err := c.PutObjectPart(parallel, a.bucket, a.key, id, i+1, body, n, minio.PutObjectPartOptions{Sha256Hex: sum, DisableContentSha256: true})
			parts[i] = minio.CompletePart{PartNumber: i + 1, ETag: part.ETag}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	_, err = c.CompleteMultipartUpload(ctx, a.bucket, a.key, id, parts, opt)
	return err
}

// watched is a file whose reading shows that an upload makes progress.
type watched struct {
	*os.File
	watch *watcher
}

func (w *watched) ReadAt(p []byte, offset int64) (int, error) {
	w.watch.alive()
	return w.File.ReadAt(p, offset)
}

// contentType is the type that browsers need for a file.
func contentType(key string) string {
	for ending, kind := range map[string]string{".html": "text/html; charset=utf-8", ".json": "application/json", ".csv": "text/csv"} {
		if strings.HasSuffix(key, ending) {
			return kind
		}
	}
	return "application/octet-stream"
}
