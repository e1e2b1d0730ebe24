// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"crypto/tls"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/credentials"

	"github.com/moonloop/moonloop/internal/testcert"
)

// TestCaptureGuarded captures through TLS with a certificate and a key of the sender. A sender that lacks one of them is refused, and none
// of its spans is in the trace. Only their owner can read the written files.
func TestCaptureGuarded(t *testing.T) {
	t.Parallel()
	ours, other := testcert.New(t), testcert.New(t)
	cert, key := testcert.Files(t, ours.Sign(t, "127.0.0.1"))
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	c := startCapture(t, folder, "--tls-cert", cert, "--tls-key", key, "--client-ca", ours.File(t), "--api-key-file", keyFile, "--keep-journal")
	send := func(name, token string, client *tls.Config) error {
		opts := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(c.grpc), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{})}
		if client == nil {
			opts = append(opts, otlptracegrpc.WithInsecure())
		} else {
			opts = append(opts, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(client)))
		}
		if token != "" {
			opts = append(opts, otlptracegrpc.WithHeaders(map[string]string{"authorization": token}))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		exporter, err := otlptracegrpc.New(ctx, opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer exporter.Shutdown(context.WithoutCancel(ctx)) //nolint:errcheck // nothing waits in it
		return exporter.ExportSpans(ctx, tracetest.SpanStubs{requestStub(name)}.Snapshots())
	}
	good := &tls.Config{RootCAs: ours.Pool(), Certificates: []tls.Certificate{ours.Sign(t)}}
	for name, tc := range map[string]struct {
		token  string
		client *tls.Config
		want   string
	}{
		"no TLS":              {"Bearer " + canary, nil, "Unavailable"},
		"no certificate":      {"Bearer " + canary, &tls.Config{RootCAs: ours.Pool()}, "Unavailable"},
		"unknown certificate": {"Bearer " + canary, &tls.Config{RootCAs: ours.Pool(), Certificates: []tls.Certificate{other.Sign(t)}}, "Unavailable"},
		"expired certificate": {"Bearer " + canary, &tls.Config{RootCAs: ours.Pool(), Certificates: []tls.Certificate{ours.SignExpired(t)}}, "Unavailable"},
		"no key":              {"", good, "not authenticated"},
		"wrong key":           {"Bearer " + canary + "x", good, "not authenticated"},
		"half a key":          {"Bearer " + canary[:10], good, "not authenticated"},
		"another scheme":      {"Basic " + canary, good, "not authenticated"},
	} {
		if err := send("refused", tc.token, tc.client); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v, want an error with %q", name, err, tc.want)
		}
	}
	if err := send("taken", "Bearer "+canary, good); err != nil {
		t.Fatal(err)
	}
	out, status := c.end(t, os.Interrupt)
	if status != exitOK || !strings.Contains(out, "1 row") {
		t.Errorf("exit status %d, want a trace of 1 row\n%s%s", status, out, &c.stderr)
	}
	if strings.Contains(out+c.stderr.String(), canary) {
		t.Error("the key is in the output")
	}
	files := 0
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == folder {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o: others can read it", name, info.Mode().Perm())
		}
		if entry.Type().IsRegular() {
			files++
			content, err := os.ReadFile(name)
			if err != nil || strings.Contains(string(content), canary) {
				t.Errorf("%s contains the key (%v)", name, err)
			}
		}
		return nil
	})
	if err != nil || files < 3 {
		t.Errorf("%d files (%v), want trace, sidecar and journal", files, err)
	}
}

// TestCaptureSecrets: flags that cannot be used are reported at once.
func TestCaptureSecrets(t *testing.T) {
	t.Parallel()
	ours := testcert.New(t)
	cert, key := testcert.Files(t, ours.Sign(t, "127.0.0.1"))
	expired, expiredKey := testcert.Files(t, ours.SignExpired(t, "127.0.0.1"))
	for name, tc := range map[string]struct{ flags, want string }{
		"half a certificate":             {"--tls-cert " + cert, "give both"},
		"the key of another certificate": {"--tls-cert " + cert + " --tls-key " + expiredKey, "is not the key"},
		"an expired certificate":         {"--tls-cert " + expired + " --tls-key " + expiredKey, "certificate expired on"},
		"an authority without TLS":       {"--client-ca " + ours.File(t), "give --tls-cert and --tls-key, too"},
		"an invalid authority":           {"--tls-cert " + cert + " --tls-key " + key + " --client-ca " + key, "--client-ca " + key + ": it holds no PEM certificate"},
		"no key in the environment":      {"--api-key-env NOBODY_SETS_THIS", "NOBODY_SETS_THIS is empty"},
	} {
		var stdout, stderr strings.Builder
		args := append([]string{"capture", "--out", filepath.Join(t.TempDir(), "t.jsonl"), "--grpc", "127.0.0.1:0", "--http", ""}, strings.Fields(tc.flags)...)
		if status := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), tc.want) {
			t.Errorf("%s: exit status %d, %s; want %d and %q", name, status, &stderr, exitUsage, tc.want)
		}
	}
	// The warning about an open address names what was not given.
	for want, l := range map[string]listenSecrets{
		"unencrypted (--tls-cert, --tls-key) and without a key (--api-key-file)": {},
		"without a key (--api-key-file)":                                         {cert: "c", key: "k"},
		"unencrypted (--tls-cert, --tls-key)":                                    {keyFile: "f"},
		"":                                                                       {cert: "c", key: "k", clientCA: "ca"},
	} {
		notice, err := checkListen("grpc", "0.0.0.0:4317", l.missing())
		if err != nil || (notice == "") != (want == "") || !strings.HasSuffix(notice, want) {
			t.Errorf("%+v: notice %q (%v), want %q", l, notice, err, want)
		}
	}
}

// requestStub returns the span of a request to a model.
func requestStub(name string) tracetest.SpanStub {
	end := time.Now()
	return tracetest.SpanStub{
		Name: "chat " + name,
		SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
		}),
		StartTime: end.Add(-time.Second), EndTime: end,
		Attributes: []attribute.KeyValue{
			attribute.String("gen_ai.operation.name", "chat"), attribute.String("gen_ai.request.model", name),
			attribute.Int("gen_ai.usage.input_tokens", 10), attribute.Int("gen_ai.usage.output_tokens", 5),
		},
	}
}

// TestFlagsListenOnLocalhost: the defaults of flags let no command listen on an address that other machines can reach.
func TestFlagsListenOnLocalhost(t *testing.T) {
	seen := 0
	for _, cmd := range newRootCommand().Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if host, _, err := net.SplitHostPort(f.DefValue); err == nil {
				seen++
				if !isLoopback(host) {
					t.Errorf("%s --%s listens on %s", cmd.Name(), f.Name, f.DefValue)
				}
			}
		})
	}
	if seen < 3 {
		t.Errorf("%d addresses found, want those of capture and simulate at least", seen)
	}
}
