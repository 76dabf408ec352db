{{/* A dashboard for Grafana's sidecar. Takes (list ROOT NAME). */}}
{{- define "headrace.dashboard" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}
{{- $dashboards := $root.Values.monitoring.dashboards -}}
{{- if $dashboards.enabled -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "headrace.fullname" $root }}-dashboard-{{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "headrace.labels" (list $root "dashboards") | nindent 4 }}
    {{ $dashboards.label }}: {{ $dashboards.labelValue | quote }}
  {{- with $dashboards.folder }}
  annotations:
    grafana_folder: {{ . | quote }}
  {{- end }}
data:
  headrace-{{ $name }}.json: {{ $root.Files.Get (printf "files/dashboards/%s.json" $name) | quote }}
{{- end -}}
{{- end -}}
