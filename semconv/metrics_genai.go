// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package semconv

// Metrics of the GenAI semantic conventions, v1.41, with their bucket lists. Attributes: [GenAIOperationName],
// [GenAIProviderName], [GenAIRequestModel], [GenAIResponseModel], [ServerAddress], [ServerPort].
var (
	// ClientOperationDuration also has [ErrorType] and [Outcome]. Ours counts from the wire to the last token, or from the hand-over of the
	// request if it never reached the wire. Only those of served requests are latencies of the engine.
	ClientOperationDuration = Metric{
		Name: "gen_ai.client.operation.duration", Latest: "gen_ai.client.inference.duration", Unit: "s",
		Description: "Duration of a GenAI operation", Boundaries: operationBuckets,
	}
	// ClientTokenUsage also has [GenAITokenType]. The revision after v1.41 has a counter for each type in its place.
	ClientTokenUsage = Metric{
		Name: "gen_ai.client.token.usage", Unit: "{token}",
		Description: "Number of input and output tokens used", Boundaries: tokenBuckets,
	}
	// ClientInputTokens and the two after it are of the revision after v1.41.
	ClientInputTokens = Metric{
		Name: "gen_ai.client.inference.usage.input_tokens", Unit: "{token}",
		Description: "Input tokens used, cached ones included",
	}
	ClientOutputTokens = Metric{
		Name: "gen_ai.client.inference.usage.output_tokens", Unit: "{token}",
		Description: "Output tokens used, reasoning included",
	}
	ClientCacheReadTokens = Metric{
		Name: "gen_ai.client.inference.usage.cache_read.input_tokens", Unit: "{token}",
		Description: "Input tokens that the provider had cached",
	}
	// ClientTimeToFirstChunk has one value per streamed request. Ours counts from the wire.
	ClientTimeToFirstChunk = Metric{
		Name: "gen_ai.client.operation.time_to_first_chunk", Latest: "gen_ai.client.inference.time_to_first_chunk", Unit: "s",
		Description: "Time from the request to the first chunk of the response", Boundaries: operationBuckets,
	}
	// ClientTimePerOutputChunk has one value for each chunk after the first.
	ClientTimePerOutputChunk = Metric{
		Name: "gen_ai.client.operation.time_per_output_chunk", Latest: "gen_ai.client.inference.time_per_output_chunk", Unit: "s",
		Description: "Time between two chunks of a response", Boundaries: operationBuckets,
	}
)

var (
	operationBuckets = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	tokenBuckets     = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
)
