// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

const twoRows = "{\"input_length\":1024,\"hash_ids\":[0,1]}\n{\"input_length\":5}\n"

func gzipped(tb testing.TB, s string) []byte {
	tb.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(s)); err != nil {
		tb.Fatal(err)
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func zstded(tb testing.TB, s string) []byte {
	tb.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return z.EncodeAll([]byte(s), nil)
}

// bzipped returns twoRows as bzip2, which the standard library can only read.
func bzipped(tb testing.TB) []byte {
	tb.Helper()
	b, err := base64.StdEncoding.DecodeString("QlpoOTFBWSZTWaUPXj0AABtbgAAQEAR2EAAKpuVOCiAAUKAAAMmQJVPUYmnqZAHo0c7Gi4s6rWUKaUySK3E/YsQOJ+oIMakhmcuOWLvgXckU4UJClD149A==")
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func write(tb testing.TB, name string, data []byte) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

func TestOpenFiles(t *testing.T) {
	gz := gzipped(t, twoRows)
	for name, data := range map[string][]byte{
		"plain.jsonl":          []byte(twoRows),
		"named-wrongly.txt":    gz,
		"members.gz":           append(bytes.Clone(gzipped(t, twoRows[:39])), gzipped(t, twoRows[39:])...),
		"trace.jsonl.zst":      zstded(t, twoRows),
		"trace.jsonl.bz2":      bzipped(t),
		"byte-order-mark.json": []byte("\xef\xbb\xbf" + twoRows),
		"blank-first.jsonl":    []byte("\n\n" + twoRows),
	} {
		t.Run(name, func(t *testing.T) {
			trace, err := Open(t.Context(), write(t, name, data), OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if rows := readAll(t, trace.Reader); len(rows) != 2 || rows[1].InputLength.V != 5 || trace.Meta() != nil {
				t.Errorf("%d rows, sidecar %v", len(rows), trace.Meta())
			}
			for range 2 { // closing twice has no effect
				if err := trace.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestReadAfterClose: a closed trace gives no further rows, although they are in memory.
func TestReadAfterClose(t *testing.T) {
	trace, err := Open(t.Context(), write(t, "t.jsonl", []byte(twoRows)), OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trace.Read(); err != nil {
		t.Error(err)
	}
	if err := trace.Close(); err != nil {
		t.Error(err)
	}
	if row, err := trace.Read(); !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), "read all rows before Close") {
		t.Errorf("%v, %v", row, err)
	}
}

func TestOpenStandardInput(t *testing.T) {
	trace, err := Open(t.Context(), "-", OpenOptions{Stdin: bytes.NewReader(gzipped(t, twoRows+"bad"))})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := trace.Read(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := trace.Read(); err == nil || !strings.HasPrefix(err.Error(), "standard input:3: ") {
		t.Errorf("error %v", err)
	}
}

// The rows of a pipe can be read as they come: nothing waits for a number of bytes.
func TestOpenSilentPipe(t *testing.T) {
	in, out := io.Pipe()
	defer func() { _ = out.Close() }()
	go func() { _, _ = io.WriteString(out, "\n{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n") }()
	read := make(chan error, 1)
	go func() {
		trace, err := Open(t.Context(), "-", OpenOptions{Stdin: in, Unit: time.Millisecond})
		if err == nil {
			_, err = trace.Read()
		}
		read <- err
	}()
	select {
	case err := <-read:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the first row waits for more")
	}
}

func TestOpenRefusesWhatIsNotATrace(t *testing.T) {
	gz := gzipped(t, strings.Repeat(twoRows, 1000))
	for _, test := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "empty: there is no row in it"},
		{"blank", []byte(" \n\n"), "empty: there is no row in it"},
		{"empty-gzip", gzipped(t, ""), "empty: there is no row in it"},
		{"csv", []byte("arrived,tokens\n1,2\n"), "not JSON lines"},
		{"elf", []byte("\x7fELF\x02\x01\x00\x00"), "binary data"},
		{"zip", []byte("PK\x03\x04rest"), "a zip archive"},
		{"xz", []byte("\xfd7zXZ\x00"), "xz-compressed"},
		{"parquet", []byte("PAR1\x15\x04"), "the Parquet file is damaged"},
		{"utf16", []byte("\xff\xfe{\x00"), "UTF-16"},
		{"twice", gzipped(t, string(gz)), "compressed twice"},
		{"damaged", []byte("\x1f\x8b\x00\x00\x00\x00\x00"), "damaged gzip"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := write(t, test.name, test.data)
			_, err := Open(t.Context(), path, OpenOptions{})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v\nwant it to contain %q and the path", err, test.want)
			}
		})
	}
	if _, err := Open(t.Context(), t.TempDir(), OpenOptions{}); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("directory: error %v", err)
	}
	if _, err := Open(t.Context(), filepath.Join(t.TempDir(), "none"), OpenOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: error %v", err)
	}
	if _, err := Open(t.Context(), "", OpenOptions{}); err == nil {
		t.Error("an empty name was opened")
	}
}

// drain reads to the end and returns the number of rows and the error that ended it.
func drain(r *Reader) (rows int, err error) {
	for {
		if _, err = r.Read(); err != nil {
			return rows, err
		}
		rows++
	}
}

func TestCutCompressedFilesAreErrors(t *testing.T) {
	// Rows that hardly compress, so that the cut is after the first ones.
	var b strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&b, "{\"input_length\":%d}\n", i*7919%100003+1)
	}
	for name, data := range map[string][]byte{"gzip": gzipped(t, b.String()), "zstd": zstded(t, b.String())} {
		trace, err := Open(t.Context(), write(t, name, data[:len(data)/2]), OpenOptions{})
		if err != nil {
			t.Fatal(name, err)
		}
		if rows, err := drain(trace.Reader); errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || rows == 20000 {
			t.Errorf("%s: %d rows, then %v: half a trace passed for a complete one", name, rows, err)
		}
		if err := trace.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDecompressionIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine works: the race detector would find nothing")
	}
	bomb := gzipped(t, strings.Repeat(twoRows, 100_000))
	size := int64(len(twoRows) * 100_000)
	for limit, whole := range map[int64]bool{size: true, size - 1: false} {
		trace, err := Open(t.Context(), write(t, "bomb.gz", bomb), OpenOptions{MaxDecompressed: limit})
		if err != nil {
			t.Fatal(err)
		}
		_, err = drain(trace.Reader)
		if whole != (err == io.EOF) || !whole && !strings.Contains(err.Error(), "unpacks to more than") { //nolint:errorlint // a wrapped EOF is the mistake that this test looks for
			t.Errorf("limit %d of %d bytes: %v", limit, size, err)
		}
		if err := trace.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSidecarSetsTheBlockSize(t *testing.T) {
	path := write(t, "x.jsonl", []byte(twoRows))
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "x.meta.json"), []byte(`{"schema":1,"block_size":64,"session_mode":"full","new":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	trace, err := Open(t.Context(), path, OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = trace.Close() }()
	if trace.BlockSize() != 64 || trace.Meta().SessionMode != SessionFull {
		t.Errorf("block size %d, sidecar %+v", trace.BlockSize(), trace.Meta())
	}
	if _, err := Open(t.Context(), path, OpenOptions{BlockSize: 16}); err == nil || !strings.Contains(err.Error(), "block size 16 contradicts") {
		t.Errorf("error %v", err)
	}
}

// server serves handlers by path, and answers 404 on other paths.
func server(t *testing.T, handlers map[string]http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := handlers[r.URL.Path]; h != nil {
			h(w, r)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func serve(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) }
}

func TestOpenURL(t *testing.T) {
	url := server(t, map[string]http.HandlerFunc{
		"/a/trace.jsonl.gz":  serve(gzipped(t, twoRows)),
		"/a/trace.meta.json": serve([]byte(`{"schema":1,"block_size":64}`)),
		"/page.jsonl":        serve([]byte(twoRows)),
		"/page.meta.json":    serve([]byte("<html>not found</html>")),
	})
	for name, blockSize := range map[string]int{"/a/trace.jsonl.gz?key=secret": 64, "/page.jsonl": 512} {
		dir := t.TempDir()
		trace, err := Open(t.Context(), url+name, OpenOptions{TempDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if rows := readAll(t, trace.Reader); len(rows) != 2 || trace.BlockSize() != blockSize {
			t.Errorf("%s: %d rows, block size %d", name, len(rows), trace.BlockSize())
		}
		if err := trace.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", name, left, err)
		}
	}
	if _, err := Open(t.Context(), url+"/page.jsonl", OpenOptions{TempDir: filepath.Join(t.TempDir(), "missing")}); err == nil || !strings.Contains(err.Error(), "set $TMPDIR") {
		t.Errorf("without a folder for temporary files: %v", err)
	}
}

func TestHalfADownloadIsAnError(t *testing.T) {
	var tries atomic.Int32
	cut := func(w http.ResponseWriter, _ *http.Request) {
		tries.Add(1)
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(twoRows))
	}
	// If it ends at the boundary of a row, half a file looks whole; only the length shows the loss.
	unframed := func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = buf.WriteString("HTTP/1.0 200 OK\r\n\r\n" + twoRows)
		_ = buf.Flush()
		_ = conn.(*net.TCPConn).Close()
	}
	url := server(t, map[string]http.HandlerFunc{
		"/cut": cut, "/unframed": unframed, "/page": serve([]byte("<html>")), "/large": serve(make([]byte, 5000)),
		"/private": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
	})
	for path, want := range map[string]string{
		"/cut?key=secret":      "broke off after",
		"/unframed?key=secret": "does not say how long the trace is",
		"/none?key=secret":     "the server answered 404 Not Found",
		"/private?key=secret":  "the server answered 403 Forbidden",
		"/page?key=secret":     "not JSON lines",
		"/large?key=secret":    "larger than the limit of 4000 bytes",
	} {
		dir := t.TempDir()
		_, err := Open(t.Context(), strings.Replace(url, "://", "://user:password@", 1)+path, OpenOptions{TempDir: dir, MaxDownload: 4000})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v\nwant it to contain %q", path, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "password")) {
			t.Errorf("%s: the error reveals a secret: %v", path, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", path, left, err)
		}
	}
	if n := tries.Load(); n != fetchAttempts {
		t.Errorf("a download that breaks off was tried %d times, want %d", n, fetchAttempts)
	}
}

func TestABrokenDownloadIsTriedAgain(t *testing.T) {
	var tries atomic.Int32
	url := server(t, map[string]http.HandlerFunc{"/t.jsonl": func(w http.ResponseWriter, _ *http.Request) {
		if tries.Add(1) == 1 {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("{\"input_length\":77}\n"))
			return
		}
		_, _ = w.Write([]byte(twoRows))
	}})
	trace, err := Open(t.Context(), url+"/t.jsonl", OpenOptions{TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if rows := readAll(t, trace.Reader); len(rows) != 2 || rows[0].InputLength.V != 1024 {
		t.Errorf("%d rows, the first with %d tokens: something of the first try is left", len(rows), rows[0].InputLength.V)
	}
	if err := trace.Close(); err != nil {
		t.Error(err)
	}
}

// TestRedirect: a server to which another one redirects does not learn the signature of the address, and a circle of redirects ends.
func TestRedirect(t *testing.T) {
	var headers http.Header
	var circles atomic.Int32
	other := server(t, map[string]http.HandlerFunc{"/t.jsonl": func(w http.ResponseWriter, r *http.Request) {
		headers = r.Header
		_, _ = w.Write([]byte(twoRows))
	}})
	url := server(t, map[string]http.HandlerFunc{
		"/t.jsonl": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other+"/t.jsonl", http.StatusFound) },
		"/circle.jsonl": func(w http.ResponseWriter, r *http.Request) {
			circles.Add(1)
			http.Redirect(w, r, "/circle.jsonl", http.StatusFound)
		},
	})
	address := strings.Replace(url, "http://", "http://user:word@", 1) + "/t.jsonl?sig=secret"
	trace, err := Open(t.Context(), address, OpenOptions{TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if rows := readAll(t, trace.Reader); len(rows) != 2 {
		t.Errorf("%d rows", len(rows))
	}
	if err := trace.Close(); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(headers); len(headers) == 0 || strings.Contains(got, "secret") || headers.Get("Authorization") != "" {
		t.Errorf("the other server got %s", got)
	}
	_, err = Open(t.Context(), url+"/circle.jsonl", OpenOptions{TempDir: t.TempDir()})
	if n := circles.Load(); err == nil || !strings.Contains(err.Error(), "10 redirects") || n > 2*fetchRedirects {
		t.Errorf("a circle: %v, after %d requests", err, n)
	}
}

func TestUnreachableServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that nobody listens on
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), "http://"+addr+"/t.jsonl?key=secret", OpenOptions{TempDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "was not fetched") || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
}
