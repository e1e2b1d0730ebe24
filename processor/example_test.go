// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package processor_test

import (
	"fmt"

	"github.com/moonloop/moonloop/processor"
)

// A Collector of your own includes the processor like any other: in its factories.
func ExampleNewFactory() {
	f := processor.NewFactory()
	fmt.Println(f.Type(), "stability: traces", f.TracesStability(), "- logs", f.LogsStability())
	// Output: mooncake stability: traces Alpha - logs Alpha
}
