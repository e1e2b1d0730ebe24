// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

const chart = examples + "/helm/moonloop"

// example renders the chart with the names of the manifests.
const example = "fullnameOverride: moonloop\nhashKey: {existingSecret: moonloop}\n"

// render renders the chart with values, as release "test", and returns its objects and its notes.
func render(t *testing.T, values string) (objects []runtime.Object, notes string) {
	t.Helper()
	files, err := renderFiles(t, values)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		switch {
		case path.Base(name) == "NOTES.txt":
			notes = content
		case strings.HasSuffix(name, ".yaml"):
			objects = append(objects, decode(t, []byte(content))...)
		}
	}
	return objects, notes
}

func renderFiles(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	loaded, err := loader.LoadDir(chart)
	if err != nil {
		t.Fatal(err)
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	release := chartutil.ReleaseOptions{Name: "test", Namespace: "default", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(loaded, all)
}

// TestChart renders the chart with common options, and decodes each object strictly.
func TestChart(t *testing.T) {
	gateway := []string{
		"ConfigMap/test-moonloop", "PodDisruptionBudget/test-moonloop-gateway", "Secret/test-moonloop", "Service/test-moonloop-gateway",
		"StatefulSet/test-moonloop-gateway",
	}
	for _, c := range []struct {
		about, values string
		without, with []string
	}{
		{about: "defaults"},
		{
			about: "an existing secret", values: "hashKey: {existingSecret: mine}",
			without: []string{"Secret/test-moonloop"},
		},
		{
			about: "every option of the gateway",
			values: `
networkPolicy: {enabled: true}
podMonitor: {enabled: true, labels: {release: prometheus}, sidecars: {app.kubernetes.io/name: chat}}
imagePullSecrets: [{name: registry}]
gateway:
  replicas: 3
  env: [{name: MOONLOOP_FSYNC, value: "true"}]
  service: {type: LoadBalancer, annotations: {a/b: c}}
  persistence: {storageClass: fast}
  serviceAccountName: moonloop
  priorityClassName: high
  podAnnotations: {a/b: c}
  podLabels: {team: llm}
  nodeSelector: {disk: ssd}
  tolerations: [{key: gpu, operator: Exists}]
  affinity: {podAntiAffinity: {}}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
`,
			with: []string{"NetworkPolicy/test-moonloop-gateway", "PodMonitor/test-moonloop-gateway", "PodMonitor/test-moonloop-sidecar"},
		},
		{
			about: "a replay", values: "replay: {enabled: true, url: 'http://vllm:8000'}",
			with: []string{"Job/test-moonloop-replay-1", "PersistentVolumeClaim/test-moonloop-results"},
		},
		{
			about: "a replay each night, alone, of a trace at a URL",
			values: `
gateway: {enabled: false}
replay:
  enabled: true
  kind: CronJob
  url: http://vllm:8000
  trace: {file: "https://traces.example/day.jsonl.zst"}
  results: {existingClaim: mine}
  env: [{name: KEY, valueFrom: {secretKeyRef: {name: engine, key: key}}}]
  args: [--api-key-env=KEY]
  nodeSelector: {disk: ssd}
  tolerations: [{key: gpu, operator: Exists}]
  affinity: {podAntiAffinity: {}}
`,
			without: gateway, with: []string{"CronJob/test-moonloop-replay"},
		},
	} {
		t.Run(c.about, func(t *testing.T) {
			objects, notes := render(t, c.values)
			want := slices.DeleteFunc(slices.Concat(gateway, c.with), func(name string) bool { return slices.Contains(c.without, name) })
			slices.Sort(want)
			if diff := cmp.Diff(want, ids(objects)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			checkSelectors(t, objects)
			if len(strings.TrimSpace(notes)) == 0 || strings.Contains(notes, "<no value>") {
				t.Errorf("notes: %q", notes)
			}
			checkNotes(t, notes, objects)
		})
	}
}

// checkSelectors requires that each selector of the release selects the pods of its StatefulSet, and no others.
func checkSelectors(t *testing.T, objects []runtime.Object) {
	t.Helper()
	pods := map[string]labels.Set{}
	for _, object := range objects {
		switch o := object.(type) {
		case *apps.StatefulSet:
			pods[id(o)] = o.Spec.Template.Labels
		case *batch.Job:
			pods[id(o)] = o.Spec.Template.Labels
		case *batch.CronJob:
			pods[id(o)] = o.Spec.JobTemplate.Spec.Template.Labels
		}
	}
	for _, object := range objects {
		var selector *meta.LabelSelector
		switch o := object.(type) {
		case *apps.StatefulSet:
			selector = o.Spec.Selector
		case *core.Service:
			selector = &meta.LabelSelector{MatchLabels: o.Spec.Selector}
		case *networking.NetworkPolicy:
			selector = &o.Spec.PodSelector
		case *policy.PodDisruptionBudget:
			selector = o.Spec.Selector
		case *monitoring.PodMonitor:
			if strings.HasSuffix(o.Name, "-sidecar") {
				continue // of pods that are not the release's
			}
			selector = &o.Spec.Selector
		default:
			continue
		}
		matcher, err := meta.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		for name, set := range pods {
			if got, want := matcher.Matches(set), strings.HasPrefix(name, "StatefulSet/"); got != want {
				t.Errorf("%s selects the pods of %s: %v, want %v", id(object), name, got, want)
			}
		}
	}
}

// checkNotes requires that the objects in the notes exist.
func checkNotes(t *testing.T, notes string, objects []runtime.Object) {
	t.Helper()
	kinds := map[string]string{"service/": "Service/", "cronjob/": "CronJob/", "job-name=": "Job/", "config map ": "ConfigMap/"}
	for _, match := range regexp.MustCompile(`(service/|cronjob/|job-name=|config map )(test-[a-z0-9-]+)`).FindAllStringSubmatch(notes, -1) {
		if name := kinds[match[1]] + match[2]; !slices.Contains(ids(objects), name) {
			t.Errorf("the notes name %s, which does not exist: %v", name, ids(objects))
		}
	}
}

// TestChartIsTheManifests: with its default values the chart runs the pods of the manifests, so that neither lacks what the other has.
func TestChartIsTheManifests(t *testing.T) {
	objects, _ := render(t, example)
	const name = "StatefulSet/moonloop-gateway"
	got, want := find[*apps.StatefulSet](t, objects, name), find[*apps.StatefulSet](t, read(t, "kubernetes/gateway.yaml"), name)
	got.Spec.Template.Spec.Containers[0].ImagePullPolicy = "" // the manifest leaves it to the cluster
	if diff := cmp.Diff(want.Spec.Template.Spec, got.Spec.Template.Spec); diff != "" {
		t.Errorf("pods of the gateway (-manifest +chart):\n%s", diff)
	}
	if diff := cmp.Diff(want.Spec.VolumeClaimTemplates, got.Spec.VolumeClaimTemplates); diff != "" {
		t.Errorf("volumes of the gateway (-manifest +chart):\n%s", diff)
	}
	const service = "Service/moonloop-gateway"
	if diff := cmp.Diff(find[*core.Service](t, read(t, "kubernetes/gateway.yaml"), service).Spec.Ports,
		find[*core.Service](t, objects, service).Spec.Ports); diff != "" {
		t.Errorf("ports of the service (-manifest +chart):\n%s", diff)
	}
	checkConfigurations(t, find[*core.ConfigMap](t, objects, "ConfigMap/moonloop"))
}

// TestChartReplays: with the values of the manifests for replays, the chart runs their pods.
func TestChartReplays(t *testing.T) {
	const replay = example + "replay: {enabled: true, url: 'http://vllm:8000', "
	job, _ := render(t, replay+"args: [--speedup=1, '--slo=ttft=2s,itl=100ms', --goodput-goal=0.95]}")
	shards, _ := render(t, replay+"kind: IndexedJob, startAt: START_AT, waitReady: 2m}")
	nightly, _ := render(t, replay+"kind: CronJob, waitReady: 10m}")
	for _, c := range []struct {
		name      string
		got, want batch.JobSpec
	}{
		{
			"Job", find[*batch.Job](t, job, "Job/moonloop-replay-1").Spec,
			find[*batch.Job](t, read(t, "kubernetes/replay-job.yaml"), "Job/moonloop-replay").Spec,
		},
		{
			"IndexedJob", find[*batch.Job](t, shards, "Job/moonloop-replay-1").Spec,
			find[*batch.Job](t, read(t, "kubernetes/replay-indexed-job.yaml"), "Job/moonloop-replay-shards").Spec,
		},
		{
			"CronJob", find[*batch.CronJob](t, nightly, "CronJob/moonloop-replay").Spec.JobTemplate.Spec,
			find[*batch.CronJob](t, read(t, "kubernetes/replay-cronjob.yaml"), "CronJob/moonloop-nightly").Spec.JobTemplate.Spec,
		},
	} {
		for _, spec := range []*batch.JobSpec{&c.got, &c.want} {
			slices.Sort(spec.Template.Spec.Containers[0].Args[2:]) // the order of flags does not matter
			spec.Template.Labels = nil                             // TestChart checks them
		}
		c.got.Template.Spec.Containers[0].ImagePullPolicy = ""
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-manifest +chart):\n%s", c.name, diff)
		}
	}
	for _, objects := range [][]runtime.Object{nightly, read(t, "kubernetes/replay-cronjob.yaml")} {
		for _, object := range objects {
			// Without a zone the schedule is in that of the cluster's controller.
			if job, ok := object.(*batch.CronJob); ok && (job.Spec.TimeZone == nil || *job.Spec.TimeZone != "Etc/UTC") {
				t.Errorf("%s has a schedule that is not in UTC", id(job))
			}
		}
	}
}

// TestChartMakesTraces: a pod that fetches its trace from a URL, or makes it, has a writable folder for it. The image has none.
func TestChartMakesTraces(t *testing.T) {
	for _, values := range []string{"trace: {file: 'https://traces.example/day.jsonl'}", "args: ['--transform=--first 100']"} {
		objects, _ := render(t, example+"replay: {enabled: true, url: 'http://vllm:8000', "+values+"}")
		pod := find[*batch.Job](t, objects, "Job/moonloop-replay-1").Spec.Template.Spec
		mounts := pod.Containers[0].VolumeMounts
		i := slices.IndexFunc(mounts, func(m core.VolumeMount) bool { return m.MountPath == "/tmp" && !m.ReadOnly })
		if i < 0 || !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == mounts[i].Name && v.EmptyDir != nil }) {
			t.Errorf("%s: the pod has no writable /tmp: %v, %v", values, mounts, pod.Volumes)
		}
	}
}

// TestChartHashKey: without a key the release draws one of 32 bytes; a given key is used unchanged.
func TestChartHashKey(t *testing.T) {
	key := func(values string) string {
		objects, _ := render(t, values)
		return string(find[*core.Secret](t, objects, "Secret/test-moonloop").Data["hash-key"])
	}
	first, second := key(""), key("")
	if raw, err := hex.DecodeString(first); err != nil || len(raw) != 32 {
		t.Errorf("the key is not 64 hexadecimal digits (%v)", err)
	}
	if first == second {
		t.Error("two releases have generated the same key")
	}
	if given := strings.Repeat("5eed", 16); key("hashKey: {value: "+given+"}") != given {
		t.Error("the key that was given is not the secret's")
	}
}

// TestChartRefuses: a configuration that cannot work is refused when it is rendered, with what to do.
func TestChartRefuses(t *testing.T) {
	for _, c := range []struct{ fault, values, want string }{
		{"a misspelt value", "gateway: {replica: 2}", "replica"},
		{"a misspelt kind", "replay: {kind: Jobs}", "kind"},
		{"a wrong type", "gateway: {replicas: two}", "replicas"},
		{"no engine", "replay: {enabled: true}", "name the engine"},
		{"shards without an instant", "replay: {enabled: true, kind: IndexedJob, url: 'http://vllm:8000'}", "name the instant"},
		{
			"no trace", "replay: {enabled: true, url: 'http://vllm:8000', trace: {configMap: ''}}",
			"neither configMap nor persistentVolumeClaim",
		},
	} {
		if _, err := renderFiles(t, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.fault, err)
		}
	}
}

// TestChartSchema: each value has a schema and each schema a value, so that none can be misspelt in either.
func TestChartSchema(t *testing.T) {
	loaded, err := loader.LoadDir(chart)
	if err != nil {
		t.Fatal(err)
	}
	var schema property
	if err := json.Unmarshal(loaded.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	delete(schema.Properties, "global") // Helm's own
	schema.compare(t, "values", loaded.Values)
}

// property is the part of a JSON schema that this test reads.
type property struct {
	Properties map[string]property `json:"properties"`
}

func (p property) compare(t *testing.T, path string, values map[string]any) {
	t.Helper()
	got, want := slices.Sorted(maps.Keys(p.Properties)), slices.Sorted(maps.Keys(values))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-values +schema):\n%s", path, diff)
	}
	for name, below := range p.Properties {
		if inner, ok := values[name].(map[string]any); ok && below.Properties != nil {
			below.compare(t, path+"."+name, inner)
		}
	}
}
