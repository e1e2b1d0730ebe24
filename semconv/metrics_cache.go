// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package semconv

// Metrics of the connector mooncake_cache: what prefix caches could hit on live traffic. Attributes, unless stated otherwise:
// [GenAIRequestModel], and [CacheTenant] if tenants are counted separately. Gauges cover the connector's window.
var (
	// CachePotentialHitRatio is a gauge, 0 to 1. Attributes also: [CacheCapacity].
	CachePotentialHitRatio = Metric{
		Name: "mooncake.cache.potential.hit_ratio", Unit: "1",
		Description: "Share of prompt tokens that a prefix cache of this capacity would have served",
	}
	// CachePotentialKnee is a gauge.
	CachePotentialKnee = Metric{
		Name: "mooncake.cache.potential.knee", Unit: "{token}",
		Description: "Smallest cache with 99 % of the hits of an infinite one",
	}
	// CachePotentialKneeSize is a gauge, only for models with a known size of KV cache for each token.
	CachePotentialKneeSize = Metric{
		Name: "mooncake.cache.potential.knee.size", Unit: "By",
		Description: "KV cache memory of the smallest cache with 99 % of the hits of an infinite one",
	}
	// CachePotentialWorkingSet is a gauge.
	CachePotentialWorkingSet = Metric{
		Name: "mooncake.cache.potential.working_set", Unit: "{token}",
		Description: "Tokens of the distinct blocks of prompts that were seen within the retention time",
	}
	// CachePotentialWorkingSetSize is a gauge, only for models with a known size of KV cache for each token.
	CachePotentialWorkingSetSize = Metric{
		Name: "mooncake.cache.potential.working_set.size", Unit: "By",
		Description: "KV cache memory of the distinct blocks of prompts that were seen within the retention time",
	}
	// CachePotentialPromptTokens is a counter.
	CachePotentialPromptTokens = Metric{
		Name: "mooncake.cache.potential.prompt_tokens", Unit: "{token}",
		Description: "Prompt tokens of the requests that were analysed",
	}
	// CachePotentialReportedTokens is a counter over requests whose engine reported cached tokens.
	CachePotentialReportedTokens = Metric{
		Name: "mooncake.cache.potential.reported_tokens", Unit: "{token}",
		Description: "Prompt tokens of the analysed requests that the engine reported as cached",
	}
	// CachePotentialReportedOf is a counter over requests whose engine reported cached tokens.
	CachePotentialReportedOf = Metric{
		Name: "mooncake.cache.potential.reported_of_tokens", Unit: "{token}",
		Description: "Prompt tokens of the analysed requests whose engine reported cached tokens",
	}
	// CachePotentialRequests is a counter. Attributes also: [CacheRequestResult].
	CachePotentialRequests = Metric{
		Name: "mooncake.cache.potential.requests", Unit: "{request}",
		Description: "Requests, by whether they were analysed, or the reason why not",
	}
	// CachePotentialIgnored is a counter. Attribute, in place of the others: [CacheRequestResult].
	CachePotentialIgnored = Metric{
		Name: "mooncake.cache.potential.ignored_spans", Unit: "{span}",
		Description: "Spans that are neither requests nor used as prompts of requests, by reason",
	}
	// CachePotentialExpired is a counter.
	CachePotentialExpired = Metric{
		Name: "mooncake.cache.potential.expired", Unit: "1",
		Description: "Models, or pairs of model and tenant, whose metrics ended because no request was analysed within the retention time",
	}
	// CachePotentialSamplingRatio is a gauge, 0 to 1.
	CachePotentialSamplingRatio = Metric{
		Name: "mooncake.cache.potential.sampling_ratio", Unit: "1",
		Description: "Share of blocks in the sample",
	}
	// CachePotentialBlocks is a gauge.
	CachePotentialBlocks = Metric{
		Name: "mooncake.cache.potential.blocks", Unit: "{block}",
		Description: "Blocks in the sample, some 100 bytes of memory each",
	}
	// CachePotentialPrefixRequests is a gauge. Attributes also: [CachePrefix].
	CachePotentialPrefixRequests = Metric{
		Name: "mooncake.cache.potential.prefix.requests", Unit: "{request}",
		Description: "Requests that began with this shared prefix, within the retention time",
	}
	// CachePotentialPrefixTokens is a gauge. Attributes also: [CachePrefix].
	CachePotentialPrefixTokens = Metric{
		Name: "mooncake.cache.potential.prefix.tokens", Unit: "{token}",
		Description: "Length of this shared prefix",
	}
)

// Attributes of those metrics.
const (
	CacheCapacity      = "mooncake.cache.capacity" // string: tokens, such as 1000000, or infinite
	CacheTenant        = "mooncake.cache.tenant"   // string: value of the resource attribute that the connector's configuration names
	CachePrefix        = "mooncake.cache.prefix"   // string: id of the last block of a shared prefix, 16 hex digits
	CacheRequestResult = "mooncake.cache.result"   // string: analysed, or why not
)
