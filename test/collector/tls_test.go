// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"crypto/tls"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/moonloop/moonloop/internal/testcert"
	"github.com/moonloop/moonloop/internal/testport"
)

// TestGuardedListener runs examples/capture/tls.yaml: with the right authority and token, a span is accepted; with only one of them, it is
// not; and neither token nor prompt is in the Collector's log or in a file of its own.
func TestGuardedListener(t *testing.T) {
	t.Parallel()
	const token, secret = "canary-7Gq0vJ2mWx9bTz4LpRfYc8", "the prompt that must not be visible"
	ours, other := testcert.New(t), testcert.New(t)
	cert, key := testcert.Files(t, ours.Sign(t, "127.0.0.1"))
	dir, data := t.TempDir(), t.TempDir()
	example, err := os.ReadFile(filepath.Join(root, "examples/capture/tls.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	address := testport.Address(t)
	text := strings.Replace(string(example), "${env:MOONLOOP_LISTEN:-localhost}:4317", address, 1)
	text = strings.Replace(text, "${env:MOONLOOP_LISTEN:-localhost}:4318", testport.Address(t), 1)
	text = strings.Replace(text, "level: normal", "level: none", 1) // its port is the same for all Collectors
	p := launch(t, dir, []string{
		testKey, "MOONLOOP_TOKEN=" + token, "MOONLOOP_TLS_CERT=" + cert, "MOONLOOP_TLS_KEY=" + key, "MOONLOOP_DIR=" + data,
	}, write(t, dir, "config.yaml", text))
	p.ready(t)

	send := func(client *tls.Config, authorization, model string) error {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(client)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		td := ptrace.NewTraces()
		span := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		span.SetName("chat " + model)
		span.SetTraceID(pcommon.TraceID{1})
		span.SetSpanID(pcommon.SpanID{2})
		span.Attributes().PutStr("gen_ai.operation.name", "chat")
		span.Attributes().PutStr("gen_ai.request.model", model)
		span.Attributes().PutStr("gen_ai.input.messages", `[{"role":"user","parts":[{"type":"text","content":"`+secret+`"}]}]`)
		ctx := t.Context()
		if authorization != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
		}
		_, err = ptraceotlp.NewGRPCClient(conn).Export(ctx, ptraceotlp.NewExportRequestFromTraces(td))
		return err
	}
	trusting := &tls.Config{RootCAs: ours.Pool()}
	for name, c := range map[string]struct {
		client        *tls.Config
		authorization string
		want          string
	}{
		"no token":          {trusting, "", "Unauthenticated"},
		"wrong token":       {trusting, "Bearer " + token + "x", "Unauthenticated"},
		"unknown authority": {&tls.Config{RootCAs: other.Pool()}, "Bearer " + token, "unknown authority"},
	} {
		if err := send(c.client, c.authorization, "refused"); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
	if err := send(trusting, "Bearer "+token, "taken"); err != nil {
		t.Fatal(err)
	}
	p.stop(t)

	var written []byte
	for _, folder := range []string{dir, data} {
		err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			if folder == data && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %o: others can read it", name, info.Mode().Perm())
			}
			content, err := os.ReadFile(name)
			written = append(written, content...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{token, secret, "refused"} {
		if bytes.Contains(written, []byte(what)) {
			t.Errorf("log, journal or trace contains %q", what)
		}
	}
	if !bytes.Contains(written, []byte("taken")) {
		t.Error("no file holds the span that was taken")
	}
}

// TestListenOnLocalhost: every address on which a configuration listens is this machine's, unless a variable says otherwise.
func TestListenOnLocalhost(t *testing.T) {
	names := configurations(t)
	local := regexp.MustCompile(`^("|)(localhost|127\.0\.0\.1|\$\{env:MOONLOOP_LISTEN:-localhost\})(:|"|$)`)
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		head := regexp.MustCompile(`(?ms)^exporters:\n.*?^(\S|\z)`).ReplaceAllString(string(content), "$1")
		if strings.HasPrefix(head, "{") {
			continue // the Operator's, in JSON: below
		}
		found := regexp.MustCompile(`(?m)^\s+(?:endpoint|host): (\S+)`).FindAllStringSubmatch(head, -1)
		for _, match := range found {
			if !local.MatchString(match[1]) {
				t.Errorf("%s listens on %s", name, match[1])
			}
		}
	}
	operator, err := os.ReadFile(filepath.Join(root, "examples/kubernetes/operator.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)^\s+endpoint: (\S+)`).FindAllStringSubmatch(string(operator), -1) {
		if !local.MatchString(match[1]) && match[1] != "moonloop-gateway:24317" { // which it sends to
			t.Errorf("operator.yaml listens on %s", match[1])
		}
	}
}
