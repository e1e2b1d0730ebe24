// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/tests3"
)

// file writes a file of random bytes.
func file(t testing.TB, size int) (name string, content []byte) {
	t.Helper()
	content = make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(content)
	name = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return name, content
}

// TestStore: what is written can be read, an existing object is replaced only on request, and the list of a folder has what is below it.
func TestStore(t *testing.T) {
	tests3.Start(t, "bucket", nil)
	var s Store
	defer s.Close()
	ctx := t.Context()
	name, content := file(t, single+1) // of two parts
	other, _ := file(t, 1000)
	for key, name := range map[string]string{"day/00/a.journal": other, "day/01/b.journal": name, "day-2/c.journal": other, "day": other} {
		if err := s.Put(ctx, "s3://bucket/"+key, name, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Put(ctx, "s3://bucket/day/00/a.journal", other, true); err != nil {
		t.Errorf("replaced: %v", err)
	}
	var urls []string
	list, err := s.List(ctx, "s3://bucket/day/")
	for _, o := range list {
		urls = append(urls, o.URL)
		if big := strings.HasSuffix(o.URL, "b.journal"); big != (o.Size == int64(len(content))) || !big && o.Size != 1000 {
			t.Errorf("%s has %d bytes", o.URL, o.Size)
		}
	}
	if got := strings.Join(urls, " "); err != nil || got != "s3://bucket/day s3://bucket/day/00/a.journal s3://bucket/day/01/b.journal" {
		t.Errorf("list: %s, %v", got, err)
	}
	if none, err := s.List(ctx, "s3://bucket/nothing"); err != nil || none != nil {
		t.Errorf("nothing: %v, %v", none, err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if err := s.Fetch(ctx, "s3://bucket/day/01/b.journal", copied); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(copied); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	if err := errors.Join(s.Remove(ctx, "s3://bucket/day"), s.Remove(ctx, "s3://bucket/day")); err != nil {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := s.Open(ctx, "s3://bucket/day"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "s3://bucket/day") {
		t.Errorf("an object that does not exist: %v", err)
	}
	if _, err := s.Open(ctx, "s3://elsewhere/day"); err == nil || !strings.Contains(err.Error(), "s3://elsewhere/day") {
		t.Errorf("a bucket that does not exist: %v", err)
	}
}

// TestGoogle: Google's URLs are read and written through its API for clients of S3, with separate keys.
func TestGoogle(t *testing.T) {
	tests3.Start(t, "bucket", nil)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	var s Store
	defer s.Close()
	name, content := file(t, 1000)
	if err := s.Put(t.Context(), "gs://bucket/day/a", name, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "gs://bucket/day/a", name, false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an object that exists: %v", err)
	}
	if err := s.Put(t.Context(), "gs://bucket/day/a", name, true); err != nil {
		t.Errorf("replaced: %v", err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if err := s.Fetch(t.Context(), "gs://bucket/day/a", copied); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(copied); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	if list, err := s.List(t.Context(), "gs://bucket/day"); err != nil || len(list) != 1 || list[0].URL != "gs://bucket/day/a" {
		t.Errorf("list: %v, %v", list, err)
	}
	t.Setenv("GS_SECRET_ACCESS_KEY", "")
	var other Store
	if _, err := other.Open(t.Context(), "gs://bucket/day/a"); err == nil || !strings.Contains(err.Error(), "export GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY") {
		t.Errorf("without a key: %v", err)
	}
}

// TestNoneReplaced: of two concurrent uploads, one is refused, even if both found no object before.
func TestNoneReplaced(t *testing.T) {
	for _, size := range []int{10, single + 1} {
		tests3.Start(t, "bucket", nil)
		var s Store
		name, _ := file(t, size)
		errs := make(chan error)
		for range 2 {
			go func() { errs <- s.Put(t.Context(), "s3://bucket/a", name, false) }()
		}
		a, b := <-errs, <-errs
		if (a == nil) == (b == nil) || !errors.Is(cmp.Or(a, b), fs.ErrExist) {
			t.Errorf("%d bytes: %v, %v", size, a, b)
		}
		s.Close()
	}
}

// TestReadOn: a reader whose connection breaks continues at the same byte, but not if the object was replaced meanwhile.
func TestReadOn(t *testing.T) {
	const size = 1 << 20
	var breaks, requests atomic.Int64
	tests3.Start(t, "bucket", func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/big") {
				requests.Add(1)
				if breaks.Add(-1) >= 0 {
					w = &cutting{w, size / 4}
				}
			}
			h.ServeHTTP(w, r)
		})
	})
	var s Store
	defer s.Close()
	name, content := file(t, size)
	if err := s.Put(t.Context(), "s3://bucket/big", name, false); err != nil {
		t.Fatal(err)
	}
	breaks.Store(3)
	r, err := s.Open(t.Context(), "s3://bucket/big")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || r.Close() != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if n := requests.Load(); n < 4 {
		t.Errorf("%d requests: the connection did not break", n)
	}
	breaks.Store(1)
	r, err = s.Open(t.Context(), "s3://bucket/big")
	if err != nil {
		t.Fatal(err)
	}
	other, _ := file(t, size-1)
	if err := s.Put(t.Context(), "s3://bucket/big", other, true); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err == nil || !strings.Contains(err.Error(), "replaced while it was read") || r.Close() != nil {
		t.Errorf("%d bytes of two objects, %v", len(got), err)
	}
}

// cutting breaks the connection after this many bytes.
type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p[:min(len(p), c.left)])
	if c.left -= n; err == nil && c.left == 0 {
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// TestBrokenUpload: an incomplete upload leaves no object.
func TestBrokenUpload(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var parts atomic.Int64
	tests3.Start(t, "bucket", func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("partNumber") && parts.Add(1) == 2 {
				cancel() // as if the process was interrupted
			}
			h.ServeHTTP(w, r)
		})
	})
	var s Store
	defer s.Close()
	name, _ := file(t, 2*single+1)
	if err := s.Put(ctx, "s3://bucket/part", name, false); !errors.Is(err, context.Canceled) {
		t.Errorf("an upload that was interrupted: %v", err)
	}
	if list, err := s.List(t.Context(), "s3://bucket/part"); err != nil || list != nil || parts.Load() < 2 {
		t.Errorf("after %d parts: %v, %v", parts.Load(), list, err)
	}
}

// TestErrors: errors say what is wrong with a URL or the environment, and show no secret.
func TestErrors(t *testing.T) {
	var refuse atomic.Bool
	var refusal atomic.Value
	refusal.Store("AccessDenied")
	tests3.Start(t, "bucket", func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if refuse.Load() {
				w.Header().Set("Content-Type", "application/xml")
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprintf(w, `<Error><Code>%s</Code><Message>Access Denied</Message><RequestId>id-of-a-request</RequestId></Error>`, refusal.Load())
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	var s Store
	defer s.Close()
	refuse.Store(true)
	name, _ := file(t, 10)
	for url, want := range map[string]string{
		"s3://":                    "has no bucket",
		"s3://user:xyzzy@bucket/a": "has no bucket, or more than one",
		"s3://bucket/a?key=xyzzy":  "a key with ? or #",
		"s3://bucket/":             "is a folder",
		"s3://ab/a":                `"ab" is not the name of a bucket: it has 3 to 63 letters`,
		"gs://ab..c/a":             `"ab..c" is not the name of a bucket`,
		"s3://bucket/\xff":         "is not a key: one has at most 1,024 bytes of UTF-8",
		"s3://bucket/" + strings.Repeat("k", 1025): "is not a key",
		"s3://bucket/a": "AccessDenied: Access Denied; the credentials of the environment do not allow that",
	} {
		err := s.Put(t.Context(), url, name, true)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "xyzzy") ||
			strings.Contains(err.Error(), tests3.Secret) || strings.Contains(err.Error(), "id-of-a-request") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
	for _, c := range []struct{ code, want string }{
		{"NoSuchBucket", `has no bucket "bucket"`},
		{"InvalidAccessKeyId", "does not know the access key"},
		{"SignatureDoesNotMatch", "the secret key"},
		{"SomethingElse", "says SomethingElse: "},
	} {
		refusal.Store(c.code)
		if _, err := s.List(t.Context(), "s3://bucket/day"); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "s3://bucket/day") {
			t.Errorf("%s: %v", c.code, err)
		}
	}
}

// TestHostileServer: an object without a length is an error, in whatever way it is read, and the text of a server is one short line.
func TestHostileServer(t *testing.T) {
	tests3.Start(t, "bucket", func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "refused") {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprintf(w, "<Error><Code>Bad\nCode</Code><Message>no\n\nmoonloop: fine %s</Message></Error>", strings.Repeat("漢", 1000))
				return
			}
			w.Header().Set("ETag", `"e"`)
			w.Header().Set("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
			_, _ = io.WriteString(w, "content")
			http.NewResponseController(w).Flush() //nolint:errcheck // the length is left out
		})
	})
	var s Store
	defer s.Close()
	const url, next = "s3://bucket/a", "s3://bucket/b"
	a := s.Ahead(t.Context(), []string{url, next})
	_, first := a.Open(url)
	_, fetchedAhead := a.Open(next)
	for what, err := range map[string]error{"opened": first, "fetched ahead": fetchedAhead, "fetched": s.Fetch(t.Context(), url, filepath.Join(t.TempDir(), "f"))} {
		if err == nil || !strings.Contains(err.Error(), "does not say how long it is") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := s.Open(t.Context(), "s3://bucket/refused")
	if err == nil || strings.Contains(err.Error(), "\n") || len(err.Error()) > 2*maxMessage || !strings.Contains(err.Error(), "Bad Code: no moonloop: fine 漢") {
		t.Errorf("the text of a server: %v", err)
	}
}

// TestEndlessList: a list that does not end is an error, and not a command that never ends. Pages without a key are allowed.
func TestEndlessList(t *testing.T) {
	var write atomic.Value // func(page int, token string) (keys []string, next string)
	var requests atomic.Int64
	tests3.Start(t, "bucket", func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := int(requests.Add(1))
			keys, next := write.Load().(func(int) ([]string, string))(n)
			fmt.Fprintf(w, "<ListBucketResult><IsTruncated>%t</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", next != "", strings.Trim(next, "-"))
			for _, key := range keys {
				fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>1</Size></Contents>", key)
			}
			if len(keys) > 1 { // a page without an end
				for err := error(nil); err == nil; {
					_, err = fmt.Fprintf(w, "<Contents><Key>%s</Key></Contents>", keys[1])
				}
			}
			fmt.Fprint(w, "</ListBucketResult>")
		})
	})
	var s Store
	defer s.Close()
	for _, c := range []struct {
		reason   string
		page     func(n int) (keys []string, next string)
		want     string
		requests int64
	}{
		{"one token", func(n int) ([]string, string) { return []string{fmt.Sprintf("day/%09d", n)}, "t" }, "a continuation token for the second time", 2},
		{
			"two tokens in turns",
			func(n int) ([]string, string) { return []string{fmt.Sprintf("day/%09d", n)}, strconv.Itoa(n % 2) },
			"a continuation token for the second time", 3,
		},
		{"new tokens, the same keys", func(n int) ([]string, string) { return []string{"day/a"}, strconv.Itoa(n) }, "two pages begin with the same key", 2},
		{"new tokens, no keys", func(n int) ([]string, string) { return nil, strconv.Itoa(n) }, "pages in a row have no key", maxEmpty + 1},
		{
			"new tokens, new keys of other folders",
			func(n int) ([]string, string) { return []string{fmt.Sprintf("day-%09d", n)}, strconv.Itoa(n) },
			"does not end after 4096 pages", maxPages,
		},
		{"a page without an end", func(int) ([]string, string) { return []string{"day/a", "day/" + strings.Repeat("b", 1000)}, "" }, "a page of the list has more than 16 MiB", 1},
		{"truncated, without a token", func(int) ([]string, string) { return []string{"day/a"}, "-" }, "Truncated response should have", 1},
		{"as many empty pages as allowed", func(n int) ([]string, string) {
			if n <= maxEmpty {
				return nil, strconv.Itoa(n)
			}
			return []string{"day/a"}, ""
		}, "", maxEmpty + 1},
	} {
		requests.Store(0)
		write.Store(c.page)
		list, err := s.List(t.Context(), "s3://bucket/day")
		if text := fmt.Sprint(err); err == nil != (c.want == "") || !strings.Contains(text, c.want) || err != nil && !strings.HasPrefix(text, "s3://bucket/day was not listed: http://") {
			t.Errorf("%s: %v, want %q", c.reason, err, c.want)
		}
		if n := requests.Load(); n != c.requests || (err == nil) != (len(list) == 1) {
			t.Errorf("%s: %d objects after %d requests, want %d", c.reason, len(list), n, c.requests)
		}
	}
}

// TestShortDNS: only a name that does not exist is reported as unknown. A DNS server that does not answer says nothing about the name.
func TestShortDNS(t *testing.T) {
	for _, c := range []struct {
		err  net.DNSError
		want string
	}{
		{net.DNSError{Err: "no such host", Name: "a.example", IsNotFound: true}, "no host a.example is known"},
		{net.DNSError{Err: "i/o timeout", Name: "a.example", Server: "192.0.2.1:53", IsTimeout: true}, "the name a.example cannot be resolved: i/o timeout"},
	} {
		err := &url.Error{Op: "Put", URL: "https://a.example/?X-Amz-Signature=s", Err: &net.OpError{Op: "dial", Net: "tcp", Err: &c.err}}
		if got := short(err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

// TestSettings: what is wrong with the environment is reported before anything is sent, without its values.
func TestSettings(t *testing.T) {
	server := tests3.Start(t, "bucket", nil)
	keys := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(keys, []byte("[default]\naws_access_key_id = a\naws_secret_access_key = "+tests3.Secret+"\n[role]\nrole_arn = b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	answer := `{"AccessKeyId": "a", "SecretAccessKey": "` + tests3.Secret + `", "Token": "t", "Expiration": "2100-01-01T00:00:00Z"}`
	role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/role" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprint(w, answer)
	}))
	defer role.Close()
	none := map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
	for _, c := range []struct {
		reason string
		set    map[string]string
		want   string
	}{
		{"keys of the environment", nil, ""},
		{"the other variable of the endpoint", map[string]string{"AWS_ENDPOINT_URL_S3": "", "AWS_ENDPOINT_URL": server, "AWS_REGION": ""}, ""},
		{"keys of a file", map[string]string{"AWS_SHARED_CREDENTIALS_FILE": keys}, ""},
		{"a profile without keys", map[string]string{"AWS_SHARED_CREDENTIALS_FILE": keys, "AWS_PROFILE": "role"}, `no keys of the profile "role"`},
		{"a role", map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": role.URL + "/role"}, ""},
		{"a role that is refused", map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": role.URL}, "gives no credentials: 403 Forbidden"},
		{"no credentials at all", map[string]string{}, "there are no credentials"},
		{"half a key", map[string]string{"AWS_SECRET_ACCESS_KEY": "xyzzy"}, "is set without the other"},
		{
			"an endpoint with a password",
			map[string]string{"AWS_ENDPOINT_URL_S3": "http://user:xyzzy@localhost", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
			"AWS_ENDPOINT_URL_S3 is not the address of a server",
		},
		{"a number of attempts that is not a number", map[string]string{"AWS_MAX_ATTEMPTS": "many"}, `AWS_MAX_ATTEMPTS is "many"`},
		{
			"no server there",
			map[string]string{"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
			"http://127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused; is the server running, and is AWS_ENDPOINT_URL_S3 its address, as seen from here?",
		},
		{
			"no such host",
			map[string]string{"AWS_ENDPOINT_URL_S3": "", "AWS_ENDPOINT_URL": "http://store.invalid", "AWS_MAX_ATTEMPTS": "1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
			"is the server running, and is AWS_ENDPOINT_URL its address",
		},
	} {
		t.Run(c.reason, func(t *testing.T) {
			if c.set != nil && c.set["AWS_ENDPOINT_URL"] == "" {
				for name, value := range none {
					t.Setenv(name, value)
				}
			}
			for name, value := range c.set {
				t.Setenv(name, value)
			}
			var s Store
			defer s.Close()
			_, err := s.List(t.Context(), "s3://bucket/a")
			if text := fmt.Sprint(err); err == nil != (c.want == "") || !strings.Contains(text, c.want) || strings.Contains(text, "xyzzy") || strings.Contains(text, tests3.Secret) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestAhead: objects come in order, each once, whatever was fetched before, also if two parts of the list are opened at once, and if one is
// opened again.
func TestAhead(t *testing.T) {
	tests3.Start(t, "bucket", nil)
	var s Store
	defer s.Close()
	var urls []string
	for i := range 30 {
		name := filepath.Join(t.TempDir(), "file")
		size := 10 + i
		if i == 7 {
			size = small + 1
		}
		if err := os.WriteFile(name, bytes.Repeat([]byte{byte(i)}, size), 0o600); err != nil {
			t.Fatal(err)
		}
		urls = append(urls, "s3://bucket/"+strconv.Itoa(i))
		if err := s.Put(t.Context(), urls[i], name, false); err != nil {
			t.Fatal(err)
		}
	}
	a := s.Ahead(t.Context(), append([]string{"a file"}, urls...))
	open := func(from, to int) {
		for i, url := range urls[from:to] {
			r, err := a.Open(url)
			if err != nil {
				t.Error(err)
				return
			}
			i += from
			got, err := io.ReadAll(r)
			if err != nil || r.Close() != nil || len(got) < 10+i || got[0] != byte(i) || got[len(got)-1] != byte(i) {
				t.Errorf("%s: %d bytes, %v", url, len(got), err)
			}
		}
	}
	var group sync.WaitGroup
	group.Go(func() { open(0, 16) })
	group.Go(func() { open(16, len(urls)) })
	group.Wait()
	open(3, 12)
}

// TestOnDay: the days in a URL are in UTC.
func TestOnDay(t *testing.T) {
	now := time.Date(2027, 3, 1, 1, 30, 0, 0, time.FixedZone("", 2*3600))
	if got := OnDay("s3://b/{yesterday}/{today}.jsonl", now); got != "s3://b/2027-02-27/2027-02-28.jsonl" {
		t.Error(got)
	}
}
