{{/* Takes (list ROOT COMPONENT PORTS). */}}
{{- define "headrace.serviceMonitor" -}}
{{- $root := index . 0 -}}{{- $component := index . 1 -}}
{{- $monitors := $root.Values.monitoring.serviceMonitors -}}
{{- if and $monitors.enabled ($root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/ServiceMonitor") -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- include "headrace.metadata" (list $root $component) | nindent 2 }}
    {{- with $monitors.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  jobLabel: app.kubernetes.io/component
  selector:
    matchLabels:
      {{- include "headrace.selector" (list $root $component) | nindent 6 }}
  endpoints:
    {{- range index . 2 }}
    - port: {{ . }}
      path: /metrics
      interval: {{ $monitors.interval }}
      {{- include "headrace.relabelings" $monitors | nindent 6 }}
    {{- end }}
{{- end -}}
{{- end -}}

{{/* Takes `monitoring.serviceMonitors`. */}}
{{- define "headrace.relabelings" -}}
# The operator names the port in a label "endpoint", which is a label of our own series.
relabelings:
  - {action: labeldrop, regex: endpoint}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
