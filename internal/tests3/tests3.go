// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package tests3 is an S3 server in memory, for tests.
package tests3

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Secret is the secret key of the environment that [Start] sets. It must not appear in any output.
const Secret = "sPlanted5ecretOfThe0bjectStore4Tests7Qm"

// Start starts a server with a bucket, sets the environment of the test's process for it, for s3:// and gs:// URLs, and returns its URL.
// change may wrap the server's handler, and may be nil.
func Start(t testing.TB, bucket string, change func(http.Handler) http.Handler) string {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	handler := conditional(gofakes3.New(backend).Server())
	if change != nil {
		handler = change(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	none := t.TempDir() + "/none"
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_S3": server.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": Secret,
		"AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_WEB_IDENTITY_TOKEN_FILE": "", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "", "AWS_MAX_ATTEMPTS": "2",
		"GS_ENDPOINT_URL": server.URL, "GS_ACCESS_KEY_ID": "tester", "GS_SECRET_ACCESS_KEY": Secret,
	} {
		t.Setenv(name, value)
	}
	return server.URL
}

// conditional refuses to complete an upload in parts if the object exists and the request has "If-None-Match: *". The library checks that
// header only for whole uploads.
func conditional(next http.Handler) http.Handler {
	var one sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || !r.URL.Query().Has("uploadId") || r.Header.Get("If-None-Match") != "*" {
			next.ServeHTTP(w, r)
			return
		}
		one.Lock()
		defer one.Unlock()
		there := httptest.NewRecorder()
		next.ServeHTTP(there, httptest.NewRequestWithContext(r.Context(), http.MethodHead, r.URL.Path, http.NoBody))
		if there.Code == http.StatusOK {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		next.ServeHTTP(w, r)
	})
}
