// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/internal/simulator"
)

// A replay needs a trace and the URL of an engine. Its report has the result of every row.
func ExampleRun() {
	engine, err := simulator.New(simulator.Config{}) // in place of yours
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(engine)
	defer server.Close()
	trace := strings.NewReader(`{"timestamp": 0, "input_length": 1100, "output_length": 20, "hash_ids": [0, 1, 2]}
{"timestamp": 50, "input_length": 1300, "output_length": 9, "hash_ids": [0, 1, 3]}
`)
	report, err := agent.Run(context.Background(), agent.Config{
		Trace:  agent.Trace{Name: "-", Stdin: trace},
		Target: agent.Target{URL: server.URL, CacheBlock: 512},
	})
	if err != nil {
		log.Fatal(err)
	}
	figures := report.Figures()
	fmt.Printf("%d of %d rows served; the engine had cached as many tokens as an infinite cache would for %d of %d\n",
		figures.Rows.Served, figures.Rows.Total, figures.Cache.Equal, figures.Cache.Predicted)
	// Output: 2 of 2 rows served; the engine had cached as many tokens as an infinite cache would for 2 of 2
}
