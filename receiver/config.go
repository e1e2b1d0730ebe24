// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"

	"github.com/moonloop/moonloop/receiver/annotate"
)

// Config is the configuration of the receiver: that of the stock OTLP receiver, and the settings of annotation and admission.
type Config struct {
	// OTLP has the protocols and their addresses; without an endpoint, gRPC listens on localhost:4317 and HTTP on localhost:4318.
	OTLP otlpreceiver.Config `mapstructure:",squash"`

	// Annotation configures the annotation.
	Annotation annotate.CollectorConfig `mapstructure:",squash"`

	// Admission limits the memory of requests, and the time in which they must arrive.
	Admission AdmissionConfig `mapstructure:"admission"`
}

const defaultReadTimeout = 30 * time.Second

// AdmissionConfig limits the memory of requests, and the time in which they must arrive.
type AdmissionConfig struct {
	// RequestLimitMiB is the maximum memory of all decoded requests in flight, in MiB, 1 to 1,048,576. Requests above it are refused. 0,
	// the default, is 256, or four times the largest message if that is more.
	RequestLimitMiB int64 `mapstructure:"request_limit_mib"`
	// ReadTimeout is the time in which a whole request must arrive, from its headers on: above 0, up to an hour. Default 30 s, three times
	// the default timeout of an SDK. For HTTP, the protocol's own read_timeout overrides it.
	ReadTimeout time.Duration `mapstructure:"read_timeout"`
}

// bytes returns the memory limit, in bytes, of a receiver with these OTLP settings.
func (c AdmissionConfig) bytes(otlp *otlpreceiver.Config) int64 {
	if c.RequestLimitMiB > 0 {
		return c.RequestLimitMiB << 20
	}
	limit := int64(256 << 20)
	if grpc := otlp.Protocols.GRPC.Get(); grpc != nil {
		limit = max(limit, 4*int64(grpc.MaxRecvMsgSizeMiB)<<20)
	}
	if http := otlp.Protocols.HTTP.Get(); http != nil {
		limit = max(limit, 4*http.ServerConfig.MaxRequestBodySize)
	}
	return limit
}

// Validate returns all errors of the receiver's own settings. The Collector validates those of OTLP separately.
func (c *Config) Validate() error {
	_, err := c.Annotation.Config()
	if n := c.Admission.RequestLimitMiB; n < 0 || n > 1<<20 {
		err = errors.Join(err, fmt.Errorf("admission::request_limit_mib: is %d, and must be 1 to 1048576, or 0 for the default", n))
	}
	if d := c.Admission.ReadTimeout; d <= 0 || d > time.Hour {
		err = errors.Join(err, fmt.Errorf("admission::read_timeout: is %s, and must be above 0s, up to 1h: leave it out for the default, %s", d, defaultReadTimeout))
	}
	return err
}

// readHeaderTimeout is the maximum time for the headers of an HTTP request. The stock receiver has no limit, so a client that sends a
// byte from time to time could keep connections forever.
const readHeaderTimeout = time.Minute

// MaxMessage is the maximum size of a message, in bytes, unless the configuration sets another. A batch of 512 spans with their prompts easily
// exceeds the stock receiver's 4 MiB for gRPC and 20 for HTTP, and its sender drops a batch that is too large.
const MaxMessage = maxMessageMiB << 20

const maxMessageMiB = 64

func createDefaultConfig() component.Config {
	otlp := otlpreceiver.NewFactory().CreateDefaultConfig().(*otlpreceiver.Config) //nolint:forcetypeassert // its own type
	grpc := *otlp.Protocols.GRPC.GetOrInsertDefault()
	grpc.MaxRecvMsgSizeMiB = maxMessageMiB
	http := *otlp.Protocols.HTTP.GetOrInsertDefault()
	http.ServerConfig.MaxRequestBodySize = MaxMessage
	http.ServerConfig.ReadHeaderTimeout = readHeaderTimeout
	otlp.Protocols.GRPC, otlp.Protocols.HTTP = configoptional.Default(grpc), configoptional.Default(http)
	return &Config{OTLP: *otlp, Annotation: annotate.DefaultCollectorConfig(), Admission: AdmissionConfig{ReadTimeout: defaultReadTimeout}}
}
