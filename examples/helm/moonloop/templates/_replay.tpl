{{- /* The specification of a replay's Job, for each kind. */}}
{{- define "moonloop.replayJob" -}}
{{- $replay := .Values.replay }}
{{- if eq $replay.kind "IndexedJob" }}
completionMode: Indexed
completions: {{ $replay.shards }}
parallelism: {{ $replay.shards }}
{{- end }}
backoffLimit: 0 # a second run would find a warm cache
{{- if ne $replay.kind "CronJob" }}
ttlSecondsAfterFinished: {{ $replay.ttlSecondsAfterFinished }}
{{- end }}
template:
  metadata:
    labels:
      {{- include "moonloop.selector" (list . "replay") | nindent 6 }}
    {{- with $replay.podAnnotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    restartPolicy: Never
    automountServiceAccountToken: false
    {{- with $replay.serviceAccountName }}
    serviceAccountName: {{ . }}
    {{- end }}
    {{- with .Values.imagePullSecrets }}
    imagePullSecrets:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "moonloop.podSecurity" . | nindent 6 }}
    containers:
      - name: moonloop
        {{- include "moonloop.image" (list . "moonloop") | nindent 8 }}
        args:
          - replay
          - {{ ternary $replay.trace.file (printf "/trace/%s" $replay.trace.file) (contains "://" $replay.trace.file) | quote }}
          - {{ printf "--url=%s" (required "replay.url is empty: name the engine, such as http://vllm:8000" $replay.url) | quote }}
          - {{ printf "--wait-ready=%s" $replay.waitReady | quote }}
          - --run-id=$(RUN_ID)
          {{- if eq $replay.kind "IndexedJob" }}
          - --shard=$(JOB_COMPLETION_INDEX)/{{ $replay.shards }}
          - {{ printf "--start-at=%s" (required "replay.startAt is empty: name the instant at which all shards begin, some minutes ahead, such as 2027-01-31T12:00:00Z" $replay.startAt) | quote }}
          {{- end }}
          {{- if $replay.otlpEndpoint }}
          {{- if ne $replay.otlpEndpoint "none" }}
          - {{ printf "--otlp-endpoint=%s" $replay.otlpEndpoint | quote }}
          - --otlp-protocol={{ $replay.otlpProtocol }}
          {{- end }}
          {{- else if .Values.gateway.enabled }}
          - --otlp-endpoint=http://{{ include "moonloop.fullname" . }}-gateway:24317
          - --otlp-protocol=grpc
          {{- end }}
          - --out=/results/$(RUN_ID){{ if eq $replay.kind "IndexedJob" }}/$(JOB_COMPLETION_INDEX){{ end }}
          - --progress=lines
          {{- with $replay.args }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        env:
          {{- if eq $replay.kind "IndexedJob" }}
          - name: RUN_ID # the name of the Job, which all shards have: moonloop merge makes one run of them
            valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/job-name']"}}
          {{- else }}
          - name: RUN_ID # the pod's name is new each time
            valueFrom: {fieldRef: {fieldPath: metadata.name}}
          {{- end }}
          {{- with $replay.env }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        resources:
          {{- toYaml $replay.resources | nindent 10 }}
        securityContext:
          {{- include "moonloop.containerSecurity" . | nindent 10 }}
        volumeMounts:
          - {name: tmp, mountPath: /tmp}
          {{- if not (contains "://" $replay.trace.file) }}
          - {name: trace, mountPath: /trace, readOnly: true}
          {{- end }}
          - {name: results, mountPath: /results}
    volumes:
      - name: tmp # a trace from a URL, or one that --from or --transform makes, is there first
        emptyDir: {}
      {{- if not (contains "://" $replay.trace.file) }}
      - name: trace
        {{- if $replay.trace.persistentVolumeClaim }}
        persistentVolumeClaim: {claimName: {{ $replay.trace.persistentVolumeClaim }}, readOnly: true}
        {{- else }}
        configMap: {name: {{ required "replay.trace has neither configMap nor persistentVolumeClaim" $replay.trace.configMap }}}
        {{- end }}
      {{- end }}
      - name: results
        persistentVolumeClaim: {claimName: {{ include "moonloop.resultsClaim" . }}}
    {{- with $replay.nodeSelector }}
    nodeSelector:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $replay.tolerations }}
    tolerations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $replay.affinity }}
    affinity:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end }}
