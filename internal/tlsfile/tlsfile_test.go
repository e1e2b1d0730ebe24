// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package tlsfile

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/internal/testcert"
)

func TestLoad(t *testing.T) {
	ours := testcert.New(t)
	cert, key := testcert.Files(t, ours.Sign(t, "127.0.0.1"))
	if c, err := (Files{}).Load(); c != nil || err != nil {
		t.Errorf("no files: %v, %v; want nothing", c, err)
	}
	c, err := Files{CA: File{"ca", ours.File(t)}}.Load()
	if err != nil || !c.RootCAs.Equal(ours.Pool()) || len(c.Certificates) > 0 || c.MinVersion != tls.VersionTLS12 {
		t.Errorf("an authority: %+v, %v", c, err)
	}
	c, err = Files{Cert: File{"cert", cert}, Key: File{"key", key}}.Load()
	if err != nil || c.RootCAs != nil || len(c.Certificates) != 1 {
		t.Fatalf("a certificate: %+v, %v", c, err)
	}
	// Whatever authorities a server names, it gets the certificate.
	got, err := c.GetClientCertificate(&tls.CertificateRequestInfo{AcceptableCAs: [][]byte{[]byte("another")}})
	if err != nil || len(got.Certificate) != 1 {
		t.Errorf("%v, %v; want the certificate", got, err)
	}
}

// TestErrors: each error names the file, and contains no part of a key. The tests of cmd/moonloop show the other errors that files can cause,
// as users see them.
func TestErrors(t *testing.T) {
	ours := testcert.New(t)
	cert, key := testcert.Files(t, ours.Sign(t))
	secret, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "broken.pem")
	for cut := range secret {
		if cut%7 != 0 {
			continue
		}
		broken := append([]byte{}, secret...)
		broken[cut] ^= 0x55
		if err := os.WriteFile(name, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Pair(File{"cert", cert}, File{"key", name})
		if err == nil {
			continue // an ignored byte, such as the last line end
		}
		if !strings.Contains(err.Error(), "key "+name) {
			t.Errorf("byte %d: %v; want one that names the file", cut, err)
		}
		for line := range strings.Lines(string(broken)) {
			if line = strings.TrimSpace(line); len(line) >= 8 && strings.Contains(err.Error(), line[:8]) && !strings.HasPrefix(line, "-----") {
				t.Errorf("byte %d: the error contains a piece of the key: %v", cut, err)
			}
		}
	}
	if err := os.WriteFile(name, make([]byte, maxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Pool(File{"ca", name}); err == nil || !strings.Contains(err.Error(), "longer than any") {
		t.Errorf("a file that is too long: %v", err)
	}
}

func TestExposed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("permissions are not in the mode")
	}
	name := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o602: true, 0o400: false} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		if Exposed(name) != want {
			t.Errorf("mode %o: exposed %t, want %t", mode, !want, want)
		}
	}
	if Exposed(name + "x") {
		t.Error("a file that does not exist is exposed")
	}
}
