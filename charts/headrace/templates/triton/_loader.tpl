{{/* The loader's container. Takes (list ROOT TRITON ADVERTISED NAME REPOSITORY POOL). */}}
{{- define "headrace.loader" -}}
{{- $root := index . 0 -}}
{{- $triton := $root.Values.triton -}}
{{- $flags := dict
  "endpoints" (include "headrace.endpoints" $root)
  "reports" (include "headrace.endpoints" $root)
  "store-url" (include "headrace.storeUrl" $root)
  "state-dir" "/var/lib/headrace"
  "triton-grpc" (index . 1)
  "advertise-grpc" (index . 2)
  "loader-name" (index . 3)
  "pool" (index . 5)
  "model-repository" (index . 4)
  "backend" $triton.backend
  "device" (ternary "gpu" $triton.device (and (gt (int64 $triton.gpus) 0) (eq $triton.device "auto") (not $triton.addresses)))
  "heartbeat-seconds" $triton.loader.heartbeatSeconds
  "load-timeout-seconds" $triton.loadTimeoutSeconds
  "cores" (include "headrace.tritonCores" $root | int64)
  "memory-megabytes" (include "headrace.tritonMegabytes" $root | int64)
  "unload-after-seconds" $triton.unloadAfterSeconds
  "metrics-host" "::"
  "metrics-port" 9303
  "log-level" (upper $root.Values.logLevel) -}}
{{- if $triton.idleSeconds }}
{{- $_ := set $flags "idle-seconds" $triton.idleSeconds }}
{{- $_ := set $flags "wake-address" "$(POD_IP):9303" }}
{{- end -}}
{{- $disk := include "headrace.bytes" $root.Values.packages.cacheSize | int64 -}}
{{- if index . 4 -}}
{{- $disk = min $disk (include "headrace.bytes" $triton.modelsSize | int64) -}}
{{- end -}}
{{- $_ := set $flags "disk-megabytes" (div $disk 1048576) -}}
{{- with include "headrace.ceilings" $root }}
{{- $_ := set $flags "ceilings" . }}
{{- end -}}
{{- if $triton.tls.existingSecret }}
{{- $_ := set $flags "triton-tls-folder" "/etc/headrace/triton-tls" }}
{{- $_ := set $flags "triton-tls-name" $triton.tls.name }}
{{- end -}}
{{- if $triton.pyfunc.enabled }}
{{- $_ := set $flags "pyfunc" true }}
{{- $_ := set $flags "pyfunc-seconds" $triton.pyfunc.seconds }}
{{- $_ := set $flags "pyfunc-megabytes" $triton.pyfunc.megabytes }}
{{- $_ := set $flags "pyfunc-closed-off" $triton.pyfunc.closedOff }}
{{- end -}}
{{- if index . 4 }}
{{- $_ := set $flags "triton-key-file" "/run/triton-control/key" }}
{{- end -}}
- name: loader
  image: {{ include "headrace.image" (list $root $triton.loader.image) }}
  imagePullPolicy: {{ $root.Values.images.pullPolicy }}
  terminationMessagePolicy: FallbackToLogsOnError
  command: [tini, --, python, -P, -m, registry.loader_main]
  args:
    {{- include "headrace.flags" $flags | nindent 4 }}
  env:
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    - name: POD_UID
      valueFrom: {fieldRef: {fieldPath: metadata.uid}}
    - name: POD_IP
      valueFrom: {fieldRef: {fieldPath: status.podIP}}
    {{- include "headrace.variables" (list $root $triton.pod) | nindent 4 }}
  {{- with include "headrace.envFrom" (list $triton.pod (include "headrace.credentials" (list $root (list "store") $triton))) }}
  {{- . | nindent 2 }}
  {{- end }}
  ports:
    - {name: loader-metrics, containerPort: 9303}
  startupProbe:
    httpGet: {path: /metrics, port: loader-metrics}
    periodSeconds: 2
    timeoutSeconds: 5
    failureThreshold: 60
  livenessProbe:
    httpGet: {path: /metrics, port: loader-metrics}
    periodSeconds: 20
    timeoutSeconds: 10
    failureThreshold: 3
  # Ready once Triton has held every stable version that it can; a promotion later changes nothing.
  readinessProbe:
    httpGet: {path: /readyz, port: loader-metrics}
    periodSeconds: 3
    timeoutSeconds: 5
  resources:
    {{- toYaml $triton.loader.resources | nindent 4 }}
  securityContext:
    {{- include "headrace.containerSecurity" $root | nindent 4 }}
  volumeMounts:
    {{- if index . 4 }}
    - {name: models, mountPath: {{ index . 4 }}}
    - {name: triton-control, mountPath: /run/triton-control, readOnly: true}
    {{- end }}
    - {name: state, mountPath: /var/lib/headrace}
    - {name: tmp, mountPath: /tmp}
    {{- with include "headrace.trustMount" $root }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with include "headrace.tritonTlsMount" $root }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- include "headrace.tokenMount" $root | nindent 4 }}
    {{- with include "headrace.extraMounts" $triton.pod }}
    {{- . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "headrace.loaderVolumes" -}}
- name: state
  emptyDir: {sizeLimit: {{ .Values.packages.cacheSize }}}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- with include "headrace.trustVolume" . }}
{{ . }}
{{- end }}
{{- with include "headrace.tritonTlsVolume" . }}
{{ . }}
{{- end }}
{{ include "headrace.tokenVolume" . }}
{{- end -}}

{{/* The certificates of gRPC to Triton, as everybody on it has them. */}}
{{- define "headrace.tritonTlsMount" -}}
{{- if .Values.triton.tls.existingSecret -}}
- {name: triton-tls, mountPath: /etc/headrace/triton-tls, readOnly: true}
{{- end -}}
{{- end -}}

{{- define "headrace.tritonTlsVolume" -}}
{{- with .Values.triton.tls.existingSecret -}}
- name: triton-tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end -}}
{{- end -}}
