// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// images is a store of the images that images/build.sh has built.
type images struct{ dir string }

// container starts an image as the manifests run it: read-only, without capabilities, as the user that the image names, with little
// memory. It ends with the test.
func (i images) container(t *testing.T, dir, name string, args ...string) *process {
	t.Helper()
	podman := []string{
		"--root", filepath.Join(i.dir, "store"), "--runroot", filepath.Join(i.dir, "run"), "--storage-driver", "vfs",
		"--runtime", "runc", "--cgroup-manager", "cgroupfs",
	}
	unique := "moonloop-acceptance-" + name
	remove := func() {
		_ = exec.Command("podman", append(podman, "rm", "--force", "--time", "2", unique)...).Run() // after the test's context
	}
	remove() // the container of a test that was killed
	t.Cleanup(remove)
	run := append(podman, "run", "--name", unique, "--network", "host", "--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL",
		"--security-opt", "no-new-privileges", "--memory", "512m", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=1024:1024")
	return start(t, dir, name, nil, "podman", append(run, args...)...)
}

// TestAcceptanceImages runs both images as a cluster would, and a whole loop in them: an engine, the Collector, and a replay that sends to
// it. Each writes only to its volume.
func TestAcceptanceImages(t *testing.T) {
	i, dir := images{setting(t, "MOONLOOP_IMAGES")}, artefacts(t)
	volume := func(name string) string {
		folder := filepath.Join(dir, name)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(folder, 10001, 10001); err != nil {
			t.Fatalf("this test runs as root: %v", err)
		}
		return folder
	}
	captures, results := volume("captures"), volume("results")

	gateway, err := filepath.Abs(filepath.Join("..", "..", "examples", "capture", "gateway.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	otelcol := i.container(t, dir, "otelcol", "--env", "MOONLOOP_HASH_KEY="+strings.Repeat("5eed", 16), "--volume", captures+":/var/lib/moonloop",
		"--volume", gateway+":/etc/moonloop/gateway.yaml:ro", "localhost/otelcol-moonloop", "--config", "/etc/moonloop/gateway.yaml")
	otelcol.find(t, regexp.MustCompile(`(Everything is ready)`))

	simulator := i.container(t, dir, "simulator", "localhost/moonloop", "simulate", "--listen", "127.0.0.1:0")
	engine := simulator.find(t, regexp.MustCompile(`listening on (\S+)`))

	replay := i.container(t, dir, "replay", "--volume", results+":/results", "localhost/moonloop", "replay", "/examples/demo.jsonl",
		"--url="+engine, "--wait-ready=1m", "--run-id=image", "--otlp-endpoint=http://127.0.0.1:24317", "--otlp-protocol=grpc",
		"--out=/results/run", "--progress=lines", "--max-requests=50")
	if code := replay.wait(t, 2*time.Minute); code != 0 && code != 3 {
		t.Fatalf("the replay ended with status %d\n%s", code, replay.tail())
	}
	var summary struct {
		Telemetry struct {
			Ended    int64 `json:"spans_ended"`
			Accepted int64 `json:"spans_accepted"`
		}
	}
	content, err := os.ReadFile(filepath.Join(results, "run", "summary.json"))
	if err = errors.Join(err, json.Unmarshal(content, &summary)); err != nil {
		t.Fatal(err)
	}
	if tel := summary.Telemetry; tel.Ended < 50 || tel.Ended != tel.Accepted {
		t.Errorf("the Collector has accepted %d of %d spans", tel.Accepted, tel.Ended)
	}
	journals, err := filepath.Glob(filepath.Join(captures, "traces", "*.journal"))
	if err != nil || len(journals) == 0 {
		t.Errorf("no journal below %s (%v)", captures, err)
	}

	t.Run("containers do not run as root, and write only to volumes", func(t *testing.T) {
		refused := i.container(t, dir, "refused", "localhost/moonloop", "generate", "--out", "/examples/new.jsonl")
		if code := refused.wait(t, time.Minute); code == 0 || !strings.Contains(string(refused.tail()), "read-only file system") {
			t.Errorf("status %d: %s", code, refused.tail())
		}
		for _, p := range []string{"otelcol", "simulator"} {
			out, err := exec.CommandContext(t.Context(), "podman", "--root", filepath.Join(i.dir, "store"), "--runroot", filepath.Join(i.dir, "run"),
				"--storage-driver", "vfs", "top", "moonloop-acceptance-"+p, "huser", "capeff").CombinedOutput()
			if fields := strings.Fields(string(out)); err != nil || len(fields) != 5 || fields[3] != "10001" || fields[4] != "none" {
				t.Errorf("%s runs as %s (%v)", p, out, err)
			}
		}
	})
}
