// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package objects

// This file opens buckets: what it takes from the environment, and what it says of a cloud's errors.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

// attempts is how often a request to S3 is made, unless AWS_MAX_ATTEMPTS says otherwise: for some twenty seconds.
const attempts = 6

func openBucket(ctx context.Context, bucket string) (*blob.Bucket, error) {
	var more []func(*config.LoadOptions) error
	if os.Getenv("AWS_MAX_ATTEMPTS") == "" {
		more = append(more, config.WithRetryMaxAttempts(attempts))
	}
	c, err := config.LoadDefaultConfig(ctx, more...)
	if err != nil {
		return nil, fmt.Errorf("the settings of AWS cannot be read: %w", err)
	}
	elsewhere := os.Getenv("AWS_ENDPOINT_URL_S3") != "" || os.Getenv("AWS_ENDPOINT_URL") != ""
	if c.Region == "" {
		if !elsewhere {
			return nil, errors.New("no region is set: export AWS_REGION, or, for another S3 server, AWS_ENDPOINT_URL_S3")
		}
		c.Region = "us-east-1" // which other servers do not look at
	}
	client := s3.NewFromConfig(c, func(o *s3.Options) {
		if elsewhere { // servers other than Amazon's seldom have a name for each bucket, nor all of its checksums
			o.UsePathStyle = true
			if os.Getenv("AWS_REQUEST_CHECKSUM_CALCULATION") == "" {
				o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
			}
			if os.Getenv("AWS_RESPONSE_CHECKSUM_VALIDATION") == "" {
				o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
			}
		}
	})
	return s3blob.OpenBucket(ctx, client, bucket, nil)
}

// short returns what a cloud said, without the ids of its requests.
func short(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return strings.TrimSuffix(fmt.Sprintf("%s: %s", api.ErrorCode(), api.ErrorMessage()), ": ")
	}
	text := err.Error()
	if _, after, found := strings.Cut(text, "exceeded maximum number of attempts"); found { // the last cause says what it is
		text = "tried several times" + after
	}
	return text
}
