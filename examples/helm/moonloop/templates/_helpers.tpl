{{- define "moonloop.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* The start of each object's name; short enough for the longest suffix, and for the suffixes that controllers add. */}}
{{- define "moonloop.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "moonloop.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "moonloop.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* What selects the pods of a component: (list . "gateway"). */}}
{{- define "moonloop.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "moonloop.name" $root }}-{{ index . 1 }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
{{- end }}

{{- define "moonloop.labels" -}}
{{- $root := index . 0 -}}
{{ include "moonloop.selector" . }}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/part-of: moonloop
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{- /* (list . "collector") */}}
{{- define "moonloop.image" -}}
{{- $root := index . 0 -}}
{{- $image := index $root.Values.images (index . 1) -}}
image: {{ printf "%s:%s" $image.repository (default $root.Chart.AppVersion $image.tag) | quote }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{- define "moonloop.secret" -}}
{{- default (include "moonloop.fullname" .) .Values.hashKey.existingSecret }}
{{- end }}

{{- define "moonloop.resultsClaim" -}}
{{- default (printf "%s-results" (include "moonloop.fullname" .)) .Values.replay.results.existingClaim }}
{{- end }}

{{- define "moonloop.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "moonloop.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
