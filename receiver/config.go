// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// Config is the configuration of the receiver: that of the stock OTLP receiver, and what is done to telemetry.
type Config struct {
	// OTLP says where to listen: protocols, with localhost:4317 for gRPC and localhost:4318 for HTTP where they are
	// named without an endpoint.
	OTLP otlpreceiver.Config `mapstructure:",squash"`

	// BlockSize is the number of tokens per block id, 1 to [annotate.MaxBlockSize]. Default 512.
	BlockSize int `mapstructure:"block_size"`
	// HashKey is the secret under which prompts and session ids are hashed, as it stands: see [annotate.ParseKey].
	// Empty means a random one for this process.
	HashKey configopaque.String `mapstructure:"hash_key"`
	// Content says what becomes of text: drop, the default, or keep.
	Content annotate.Policy `mapstructure:"content"`
	// SessionKeys are attributes that hold a session id, best first, by their full names. They come before those that are
	// known.
	SessionKeys []string `mapstructure:"session_keys"`
	// Deny are attributes that are removed from all spans, metrics and logs, beside those that are known. A trailing *
	// matches all names that begin so.
	Deny []string `mapstructure:"deny"`

	// MessageEnds says whether spans tell where the messages of a prompt end, and its reply. Default true.
	MessageEnds bool `mapstructure:"message_ends"`
	// PromptOrder says of models in which order their chat templates write a prompt. The first that matches counts.
	PromptOrder []ModelOrderConfig `mapstructure:"prompt_order"`

	// Admission bounds the memory of requests, and the time that they take to come.
	Admission AdmissionConfig `mapstructure:"admission"`
}

// ModelOrderConfig says in which order the chat template of a model writes a prompt.
type ModelOrderConfig struct {
	// Model is the name that is asked for or answers. A trailing * matches all names that begin so.
	Model string `mapstructure:"model"`
	// Order is what the template moves directly before the last message of the user: as_sent (nothing), system_last, tools_last or both_last.
	Order string `mapstructure:"order"`
}

// AdmissionConfig says how much memory requests may take, and how long they may take to come.
type AdmissionConfig struct {
	// RequestLimitMiB is what the requests under way may take together once they are decoded, in MiB, 1 to 1,048,576. What
	// comes above it is refused. 0, the default, is 256, or four times the largest message where that is more.
	RequestLimitMiB int64 `mapstructure:"request_limit_mib"`
	// ReadTimeout is the time in which all of a request must have come, from its headers on: up to an hour. 0, the default, is
	// 30 s, three times what an SDK waits by default. Over HTTP a read_timeout of the protocol's own takes its place.
	ReadTimeout time.Duration `mapstructure:"read_timeout"`
}

// readTimeout returns the time in which all of a request must have come.
func (c AdmissionConfig) readTimeout() time.Duration { return cmp.Or(c.ReadTimeout, 30*time.Second) }

// bytes returns the limit for a server of OTLP.
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

var (
	_ component.Config  = (*Config)(nil)
	_ confmap.Validator = (*Config)(nil)
)

// Validate returns all that is wrong with the receiver's own settings. Those of OTLP are validated with them.
func (c *Config) Validate() error {
	config, err := c.annotation()
	if c.BlockSize == 0 {
		config.BlockSize = -1 // the default is written out
	}
	if n := c.Admission.RequestLimitMiB; n < 0 || n > 1<<20 {
		err = errors.Join(err, fmt.Errorf("admission::request_limit_mib: is %d, and must be 1 to 1048576: leave it out for 256", n))
	}
	if d := c.Admission.ReadTimeout; d < 0 || d > time.Hour {
		err = errors.Join(err, fmt.Errorf("admission::read_timeout: is %s, and must be above 0s, up to 1h: leave it out for 30s", d))
	}
	return errors.Join(err, config.Validate())
}

// annotation returns the configuration of the annotator.
func (c *Config) annotation() (annotate.Config, error) {
	key, err := annotate.ParseKey(string(c.HashKey))
	var orders []annotate.ModelOrder
	for _, o := range c.PromptOrder {
		orders = append(orders, annotate.ModelOrder(o))
	}
	return annotate.Config{
		BlockSize:   c.BlockSize,
		Key:         key,
		Content:     c.Content,
		SessionKeys: c.SessionKeys,
		Deny:        c.Deny,

		OmitMessageEnds: !c.MessageEnds,
		PromptOrder:     orders,
	}, err
}

// readHeaderTimeout bounds the time that the headers of an HTTP request may take. The stock receiver has none, so that
// whoever sends a byte now and then could hold connections for ever.
const readHeaderTimeout = time.Minute

func createDefaultConfig() component.Config {
	otlp := otlpreceiver.NewFactory().CreateDefaultConfig().(*otlpreceiver.Config) //nolint:forcetypeassert // its own type
	overHTTP := otlp.Protocols.HTTP
	server := *overHTTP.GetOrInsertDefault()
	server.ServerConfig.ReadHeaderTimeout = readHeaderTimeout
	otlp.Protocols.HTTP = configoptional.Default(server)
	return &Config{OTLP: *otlp, BlockSize: mooncake.BlockSize, Content: annotate.ContentDrop, MessageEnds: true}
}
