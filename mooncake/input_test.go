// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpenInput: any bytes can be read from the sources of a trace, decompressed, and no sidecar is read.
func TestOpenInput(t *testing.T) {
	const content = "not,a,trace\n"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"plain.csv": []byte(content), "packed.csv.gz": packed.Bytes(), "plain.csv.meta.json": []byte("foreign")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	for name, label := range map[string]string{
		filepath.Join(dir, "plain.csv"):     filepath.Join(dir, "plain.csv"),
		filepath.Join(dir, "packed.csv.gz"): filepath.Join(dir, "packed.csv.gz"),
		"-":                                 "standard input",
		server.URL + "/packed.csv.gz?key=s": server.URL + "/packed.csv.gz",
	} {
		in, err := OpenInput(t.Context(), name, OpenOptions{Stdin: bytes.NewReader(packed.Bytes())})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := io.ReadAll(in)
		if err != nil || string(got) != content || in.Label != label {
			t.Errorf("%s: %q, error %v, label %q", name, got, err, in.Label)
		}
		if err := in.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenInput(t.Context(), dir, OpenOptions{}); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: error %v", err)
	}
}
