// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testport"
)

// fleetNode is a node of the cluster, so that a controller creates a pod for it; only this test runs that pod.
const fleetNode = `
apiVersion: v1
kind: Node
metadata: {name: of-a-test, labels: {kubernetes.io/hostname: of-a-test}}
`

// fleetPod is the part of a pod that this test runs.
type fleetPod struct {
	Metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Containers []struct {
			Args    []string `json:"args"`
			EnvFrom []struct {
				SecretRef struct {
					Name string `json:"name"`
				} `json:"secretRef"`
			} `json:"envFrom"`
			Env []struct {
				Name      string `json:"name"`
				Value     string `json:"value"`
				ValueFrom struct {
					FieldRef struct {
						Path string `json:"fieldPath"`
					} `json:"fieldRef"`
					SecretKeyRef struct {
						Name string `json:"name"`
						Key  string `json:"key"`
					} `json:"secretKeyRef"`
				} `json:"valueFrom"`
			} `json:"env"`
		} `json:"containers"`
	} `json:"spec"`
}

// fleet is a cluster whose pods are run as processes, and the store that they share.
type fleet struct {
	*cluster
	dir, buckets, store string
}

// TestAcceptanceKubernetesFleet applies the four manifests of a fleet to a real API server, whose controllers create the pods, and runs
// the containers of these pods: the Collector of the DaemonSet captures production; the compilation, four shards of a replay and their
// report follow. They share only a real S3 server. The result has each request of production once.
func TestAcceptanceKubernetesFleet(t *testing.T) {
	bin := setting(t, "MOONLOOP_KUBERNETES")
	examples := filepath.Join("..", "..", "examples")
	f := &fleet{cluster: startCluster(t, bin), dir: filepath.Join(setting(t, "MOONLOOP_OUT"), t.Name())}
	f.buckets, f.store = filepath.Join(f.dir, "buckets"), "127.0.0.1:"+testport.Port(t)
	if err := os.MkdirAll(filepath.Join(f.buckets, "moonloop"), 0o700); err != nil { // a folder is a bucket
		t.Fatal(err)
	}
	start(t, f.dir, "versitygw", []string{"ROOT_ACCESS_KEY=test", "ROOT_SECRET_KEY=of-a-test"}, filepath.Join(setting(t, "MOONLOOP_FLEET"), "versitygw"),
		"--port", f.store, "--quiet", "posix", "--nometa", f.buckets)
	waitFor(t, f.store)

	f.kubectl(t, "create", "configmap", "moonloop-fleet", "--from-file="+filepath.Join(examples, "capture", "s3.yaml"))
	f.kubectl(t, "create", "secret", "generic", "moonloop", "--from-literal=hash-key="+strings.Repeat("5eed", 16))
	f.kubectl(t, "create", "secret", "generic", "moonloop-store", "--from-literal=AWS_REGION=us-east-1", "--from-literal=AWS_ACCESS_KEY_ID=test",
		"--from-literal=AWS_SECRET_ACCESS_KEY=of-a-test", "--from-literal=AWS_ENDPOINT_URL_S3=http://"+f.store, "--from-literal=S3_ENDPOINT=http://"+f.store,
		"--from-literal=S3_PATH_STYLE=true")
	f.apply(t, writeFile(t, f.dir, "node.yaml", fleetNode))
	for _, part := range []string{"capture", "compile", "replay", "report"} {
		f.apply(t, filepath.Join(examples, "kubernetes", "fleet-"+part+".yaml"))
	}

	// Capture, as in the DaemonSet.
	pod := f.fleetPods(t, "app.kubernetes.io/name=moonloop-capture", 1)[0]
	host := map[string]string{"status.podIP": "127.0.0.1"}
	config, err := filepath.Abs(filepath.Join(examples, "capture", "s3.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	grpc, otlp, health, metrics := testport.Port(t), testport.Port(t), testport.Port(t), testport.Port(t)
	ports := writeFile(t, f.dir, "ports.yaml", fmt.Sprintf(`
receivers: {mooncake: {protocols: {grpc: {endpoint: "127.0.0.1:%s"}, http: {endpoint: "127.0.0.1:%s"}}}}
exporters: {awss3: {sending_queue: {batch: {flush_timeout: 1s}}}}
extensions: {health_check: {endpoint: "127.0.0.1:%s"}}
service: {telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: %s}}}}]}}}
`, grpc, otlp, health, metrics))
	args, environment := f.container(t, pod, host)
	collector := start(t, f.dir, "capture", append(environment, "MOONLOOP_DIR="+filepath.Join(f.dir, "queue")), setting(t, "MOONLOOP_OTELCOL"),
		append(replaced(args, "/etc/moonloop/s3.yaml", config), "--config", ports)...)
	waitFor(t, "127.0.0.1:"+otlp)
	const conversations, turns = 40, 3
	sendConversations(t, "http://127.0.0.1:"+otlp+"/v1/traces", conversations, turns)
	collector.stop(t)

	// The day of the journals is today.
	today := []string{"{yesterday}", "{today}"}
	job := func(name, cronjob string, pods int) []fleetPod {
		f.kubectl(t, "create", "job", name, "--from=cronjob/"+cronjob)
		return f.fleetPods(t, "batch.kubernetes.io/job-name="+name, pods)
	}
	run := func(name string, pod fleetPod, more ...string) *process {
		args, environment := f.container(t, pod, nil)
		temp := filepath.Join(f.dir, "tmp-"+name)
		if err := os.MkdirAll(temp, 0o700); err != nil {
			t.Fatal(err)
		}
		return start(t, f.dir, name, append(environment, "TMPDIR="+temp), setting(t, "MOONLOOP_BIN"), replaced(args, append(today, more...)...)...)
	}
	compile := run("compile", job("compile-now", "moonloop-fleet-compile", 1)[0])
	if status := compile.wait(t, 2*time.Minute); status != 0 {
		t.Fatalf("compile: status %d\n%s", status, compile.tail())
	}

	engine := startSimulator(t, f.dir, "--model", "simulated")
	at := time.Now().UTC().Add(90 * time.Second).Truncate(time.Minute) // 30 to 90 seconds ahead
	shards := job("replay-now", "moonloop-fleet-replay", 4)
	var replays []*process
	for i, pod := range shards {
		replays = append(replays, run(fmt.Sprintf("replay-%d", i), pod, "http://vllm:8000", engine, "03:10", at.Format("15:04")))
	}
	indexes := map[string]bool{}
	for i, replay := range replays {
		if status := replay.wait(t, 5*time.Minute); status != 0 && status != 3 { // a busy machine makes a measurement invalid
			t.Fatalf("shard %d: status %d\n%s", i, status, replay.tail())
		}
		indexes[shards[i].Metadata.Annotations["batch.kubernetes.io/job-completion-index"]] = true
	}
	if len(indexes) != 4 {
		t.Errorf("the controller gave the pods the indexes %v", indexes)
	}
	report := run("report", job("report-now", "moonloop-fleet-report", 1)[0])
	if status := report.wait(t, 2*time.Minute); status != 0 && status != 3 {
		t.Fatalf("report: status %d\n%s", status, report.tail())
	}

	// The content of the store, read as files.
	day := time.Now().UTC().Format(time.DateOnly)
	var summary struct {
		Verdict struct {
			Class   string   `json:"class"`
			Reasons []string `json:"reasons"`
		} `json:"verdict"`
		Shards struct {
			Each []any `json:"each"`
		} `json:"shards"`
	}
	whole := filepath.Join(f.buckets, "moonloop", "reports", day)
	content, err := os.ReadFile(filepath.Join(whole, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &summary); err != nil {
		t.Fatal(err)
	}
	records, err := os.ReadFile(filepath.Join(whole, "requests.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if rows := bytes.Count(records, []byte("\n")); rows != conversations*turns || bytes.Count(records, []byte(`"outcome": "served"`))+bytes.Count(records, []byte(`"outcome":"served"`)) != rows || len(summary.Shards.Each) != 4 {
		t.Errorf("%d records of %d requests of production, %d shards", rows, conversations*turns, len(summary.Shards.Each))
	}
	if summary.Verdict.Class != "valid" {
		t.Errorf("the merged report is %s: %v", summary.Verdict.Class, summary.Verdict.Reasons)
	}
	for _, name := range []string{"reports/" + day + "/report.html", "requests/" + day + ".parquet", "traces/" + day + ".meta.json"} {
		if _, err := os.Stat(filepath.Join(f.buckets, "moonloop", name)); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d requests of production: captured by a DaemonSet's pod, compiled, replayed by 4 pods of an Indexed Job, and merged", conversations*turns)
}

// replaced replaces texts in arguments, pair by pair.
func replaced(args []string, pairs ...string) []string {
	args = slices.Clone(args)
	r := strings.NewReplacer(pairs...)
	for i, arg := range args {
		args[i] = r.Replace(arg)
	}
	return args
}

// waitFor waits until somebody listens.
func waitFor(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = connection.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody listens on %s", address)
		}
	}
}

// fleetPods waits until controllers have created this many pods, and returns them by name.
func (f *fleet) fleetPods(t *testing.T, selector string, want int) []fleetPod {
	t.Helper()
	f.pods(t, selector, want)
	var list struct {
		Items []fleetPod `json:"items"`
	}
	if err := json.Unmarshal([]byte(f.kubectl(t, "get", "pods", "--selector", selector, "--output", "json")), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// container returns the arguments and the environment of a pod's container, as a kubelet makes them. Fields that only a kubelet knows are
// passed in.
func (f *fleet) container(t *testing.T, pod fleetPod, known map[string]string) (args, environment []string) {
	t.Helper()
	c := pod.Spec.Containers[0]
	secret := func(name string) map[string]string {
		var s struct {
			Data map[string]string `json:"data"`
		}
		if err := json.Unmarshal([]byte(f.kubectl(t, "get", "secret", name, "--output", "json")), &s); err != nil {
			t.Fatal(err)
		}
		for key, value := range s.Data {
			plain, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				t.Fatal(err)
			}
			s.Data[key] = string(plain)
		}
		return s.Data
	}
	variables := map[string]string{}
	for _, from := range c.EnvFrom {
		maps.Copy(variables, secret(from.SecretRef.Name))
	}
	for _, v := range c.Env {
		path, key := v.ValueFrom.FieldRef.Path, v.ValueFrom.SecretKeyRef
		switch {
		case key.Name != "":
			variables[v.Name] = secret(key.Name)[key.Key]
		case known[path] != "":
			variables[v.Name] = known[path]
		case strings.HasPrefix(path, "metadata.annotations['"):
			variables[v.Name] = pod.Metadata.Annotations[strings.Trim(strings.TrimPrefix(path, "metadata.annotations"), "[']")]
		case strings.HasPrefix(path, "metadata.labels['"):
			variables[v.Name] = pod.Metadata.Labels[strings.Trim(strings.TrimPrefix(path, "metadata.labels"), "[']")]
		case path != "":
			t.Fatalf("%s: nobody knows the field %s", pod.Metadata.Name, path)
		default:
			variables[v.Name] = v.Value
		}
	}
	var pairs []string
	for name, value := range variables {
		pairs = append(pairs, "$("+name+")", value)
		environment = append(environment, name+"="+value)
	}
	args = replaced(c.Args, pairs...)
	for _, arg := range args {
		if strings.Contains(arg, "$(") {
			t.Errorf("%s: %s has a variable that nobody sets", pod.Metadata.Name, arg)
		}
	}
	return args, environment
}

// sendConversations sends requests of production, as an application's instrumentation does: conversations that begin with one system
// prompt.
func sendConversations(t *testing.T, url string, conversations, turns int) {
	t.Helper()
	text := func(role, content string) map[string]any {
		return map[string]any{"role": role, "parts": []any{map[string]any{"type": "text", "content": content}}}
	}
	attribute := func(key string, value any) map[string]any {
		kind := "stringValue"
		if n, ok := value.(int); ok {
			kind, value = "intValue", fmt.Sprint(n)
		}
		return map[string]any{"key": key, "value": map[string]any{kind: value}}
	}
	begin := time.Now().Add(-time.Minute)
	for c := range conversations {
		messages := []any{text("system", strings.Repeat("You answer in one sentence. ", 100))}
		for turn := range turns {
			messages = append(messages, text("user", fmt.Sprintf("question %d of conversation %d: %s", turn, c, strings.Repeat("why? ", 50))))
			prompt, err := json.Marshal(messages)
			if err != nil {
				t.Fatal(err)
			}
			at := begin.Add(time.Duration(turn*conversations+c) * 50 * time.Millisecond)
			span := map[string]any{
				"traceId": fmt.Sprintf("%032x", 1+turn*conversations+c), "spanId": fmt.Sprintf("%016x", 1+turn*conversations+c), "name": "chat m", "kind": 3,
				"startTimeUnixNano": fmt.Sprint(at.UnixNano()), "endTimeUnixNano": fmt.Sprint(at.Add(40 * time.Millisecond).UnixNano()),
				"attributes": []any{
					attribute("gen_ai.operation.name", "chat"), attribute("gen_ai.request.model", "simulated"), attribute("gen_ai.conversation.id", fmt.Sprint("talk-", c)),
					attribute("gen_ai.usage.input_tokens", 700+100*turn), attribute("gen_ai.usage.output_tokens", 8), attribute("gen_ai.input.messages", string(prompt)),
				},
			}
			body, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{"scopeSpans": []any{map[string]any{"spans": []any{span}}}}}})
			if err != nil {
				t.Fatal(err)
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Fatalf("a span is answered with %s", response.Status)
			}
		}
	}
}
