// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"               //nolint:depguard // an independent receiver to test against
	"go.opentelemetry.io/collector/config/configauth"       //nolint:depguard // an independent receiver to test against
	"go.opentelemetry.io/collector/config/confighttp"       //nolint:depguard // an independent receiver to test against
	"go.opentelemetry.io/collector/config/configoptional"   //nolint:depguard // an independent receiver to test against
	"go.opentelemetry.io/collector/config/configtls"        //nolint:depguard // an independent receiver to test against
	"go.opentelemetry.io/collector/extension/extensionauth" //nolint:depguard // an independent receiver to test against
	"go.opentelemetry.io/collector/receiver/otlpreceiver"   //nolint:depguard // an independent receiver to test against

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/internal/testcert"
	"github.com/moonloop/moonloop/semconv"
)

const token = "canary-7Gq0vJ2mWx9bTz4LpRfYc8"

// guarded is a Collector's host with an extension that requires the token.
type guarded struct{ component.Host }

// GetExtensions implements component.Host.
func (guarded) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{guardID: guard{}}
}

var guardID = component.MustNewID("bearer")

type guard struct {
	component.StartFunc
	component.ShutdownFunc
}

var _ extensionauth.Server = guard{}

// Authenticate implements extensionauth.Server.
func (guard) Authenticate(ctx context.Context, headers map[string][]string) (context.Context, error) {
	for name, values := range headers {
		if strings.EqualFold(name, "authorization") && values[0] == "Bearer "+token {
			return ctx, nil
		}
	}
	return ctx, errors.New("not authenticated")
}

// withTLS makes a receiver use TLS, and require certificates of an authority if one is given.
func withTLS(cfg *otlpreceiver.Config, cert, key, clients string) {
	secure := configtls.ServerConfig{Config: configtls.Config{CertFile: cert, KeyFile: key}, ClientCAFile: clients}
	cfg.Protocols.GRPC.Get().TLS, cfg.Protocols.HTTP.Get().ServerConfig.TLS = configoptional.Some(secure), configoptional.Some(secure)
}

// TestExportTLS: spans and metrics are sent through TLS by each protocol, with certificates and tokens from the standard variables.
// Failures are in the counts, with a hint at the remedy, and each span is counted as lost.
func TestExportTLS(t *testing.T) {
	ours, other := testcert.New(t), testcert.New(t)
	files := func(prefix, cert, key string) []string {
		return []string{prefix + "CLIENT_CERTIFICATE=" + cert, prefix + "CLIENT_KEY=" + key}
	}
	const family = "OTEL_EXPORTER_OTLP_"
	trusted := family + "CERTIFICATE=" + ours.File(t)
	headers := family + "HEADERS=x-team=a,authorization=Bearer%20" + token
	goodCert, goodKey := testcert.Files(t, ours.Sign(t))
	foreignCert, foreignKey := testcert.Files(t, other.Sign(t))
	cert, key := testcert.Files(t, ours.Sign(t, "127.0.0.1"))
	expiredCert, expiredKey := testcert.Files(t, ours.SignExpired(t, "127.0.0.1"))
	namedCert, namedKey := testcert.Files(t, ours.Sign(t, "collector.example"))

	for _, c := range []struct {
		name      string
		cert, key string // of the receiver; empty = no TLS
		mutual    bool
		scheme    string
		env       []string
		want      string // part of the first error; empty = everything arrived
	}{
		{"authority and token", cert, key, false, "https://", []string{trusted, headers}, ""},
		{"a signal's own variables", cert, key, false, "https://", []string{
			"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE=" + ours.File(t), "OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE=" + ours.File(t), headers,
		}, ""},
		{"certificates on both sides", cert, key, true, "https://", append(files(family, goodCert, goodKey), trusted, headers), ""},
		{"unknown authority", cert, key, false, "https://", []string{headers}, "OTEL_EXPORTER_OTLP_CERTIFICATE"},
		{"the receiver's certificate has expired", expiredCert, expiredKey, false, "https://", []string{trusted, headers}, "the receiver needs a new certificate"},
		{"the receiver's certificate has another name", namedCert, namedKey, false, "https://", []string{trusted, headers}, "name the endpoint as its certificate does"},
		{"client certificate missing", cert, key, true, "https://", []string{trusted, headers}, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"},
		{"client certificate not trusted", cert, key, true, "https://", append(files(family, foreignCert, foreignKey), trusted, headers), "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"},
		{"no token", cert, key, false, "https://", []string{trusted}, "authorization=Bearer%20TOKEN"},
		{"wrong token", cert, key, false, "https://", []string{trusted, family + "HEADERS=authorization=Bearer%20" + token + "x"}, "authorization=Bearer%20TOKEN"},
		{"https to a port without TLS", "", "", false, "https://", []string{trusted, headers}, "does the endpoint begin with http://?"},
		{"http to a port with TLS", cert, key, false, "http://", []string{headers}, "https://"},
	} {
		for _, protocol := range []string{ProtocolGRPC, ProtocolHTTP} {
			t.Run(c.name+", "+protocol, func(t *testing.T) {
				receiver := startCollectorWith(t, guarded{}, func(cfg *otlpreceiver.Config) {
					auth := configauth.Config{AuthenticatorID: guardID}
					overGRPC, overHTTP := cfg.Protocols.GRPC.Get(), &cfg.Protocols.HTTP.Get().ServerConfig
					overGRPC.Auth = configoptional.Some(auth)
					overHTTP.Auth = configoptional.Some(confighttp.AuthConfig{Config: auth})
					if c.cert == "" {
						return
					}
					var clients string
					if c.mutual {
						clients = ours.File(t)
					}
					withTLS(cfg, c.cert, c.key, clients)
				})
				cleanEnv(t, c.env...)
				cfg := target
				lost := c.want != ""
				if lost && protocol == ProtocolGRPC { // which retries until its time is over: one signal is enough, and not much time
					t.Setenv("OTEL_METRICS_EXPORTER", "none")
					cfg.ExportTimeout = 600 * time.Millisecond
				}
				cfg.Protocol, cfg.Endpoint = protocol, strings.Replace(map[string]string{ProtocolGRPC: receiver.grpc, ProtocolHTTP: receiver.http}[protocol], "http://", c.scheme, 1)
				p, _ := start(t, cfg)
				finish(p, nil, served(3))
				loss := shutdown(t, p)
				if !lost {
					if !loss.Complete() || loss.MetricFailures > 0 || receiver.traces.SpanCount() != int(loss.Ended) || receiver.metrics.DataPointCount() == 0 {
						t.Errorf("%+v, %d spans arrived", loss, receiver.traces.SpanCount())
					}
					return
				}
				if loss.Lost[semconv.LostExport] != loss.Ended || loss.Ended == 0 || (loss.MetricFailures == 0) != (protocol == ProtocolGRPC) {
					t.Errorf("%+v, want everything lost and counted", loss)
				}
				if receiver.traces.SpanCount()+receiver.metrics.DataPointCount() > 0 {
					t.Error("something arrived")
				}
				if !strings.Contains(loss.FirstError, c.want) || strings.Contains(loss.FirstError, token) {
					t.Errorf("first error %q, want one with %q and without the token", loss.FirstError, c.want)
				}
			})
		}
	}
}

// TestSecretsOfTheEnvironment: certificates, keys and headers that cannot be used are an error at the start. The exporters would continue
// without them, and log the header.
func TestSecretsOfTheEnvironment(t *testing.T) {
	ours := testcert.New(t)
	cert, key := testcert.Files(t, ours.Sign(t))
	expiredCert, expiredKey := testcert.Files(t, ours.SignExpired(t))
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const family = "OTEL_EXPORTER_OTLP_"
	for _, c := range []struct{ env, want string }{
		{"CERTIFICATE=" + empty, "OTEL_EXPORTER_OTLP_CERTIFICATE " + empty + ": it holds no PEM certificate"},
		{"TRACES_CERTIFICATE=/missing/ca.pem", "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: open /missing/ca.pem"},
		{"CLIENT_CERTIFICATE=" + cert, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE without OTEL_EXPORTER_OTLP_CLIENT_KEY"},
		{"METRICS_CLIENT_CERTIFICATE=" + cert + "\n" + family + "METRICS_CLIENT_KEY=" + expiredKey, "it is not the key of the certificate"},
		{"CLIENT_CERTIFICATE=" + expiredCert + "\n" + family + "CLIENT_KEY=" + expiredKey, "certificate expired on"},
		{"CLIENT_KEY=" + key, "OTEL_EXPORTER_OTLP_CLIENT_KEY without"},
		{"HEADERS=a=b,authorization: Bearer " + token, "OTEL_EXPORTER_OTLP_HEADERS: its pair 2 cannot be read"},
		{"TRACES_HEADERS=authorization=" + token + "%zz", "OTEL_EXPORTER_OTLP_TRACES_HEADERS: its pair 1"},
		{"METRICS_HEADERS=a b=" + token, "OTEL_EXPORTER_OTLP_METRICS_HEADERS: its pair 1"},
	} {
		t.Run(c.want, func(t *testing.T) {
			cleanEnv(t, strings.Split(family+c.env, "\n")...)
			p, err := Start(t.Context(), Config{Endpoint: "https://127.0.0.1:1"}, clock.New())
			if err == nil || p != nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), token) {
				t.Errorf("%v, want an error with %q, without the token", err, c.want)
			}
		})
	}
}
