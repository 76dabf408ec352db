{{/* A dashboard for Grafana's sidecar, and for grafana-operator. Takes (list ROOT NAME). */}}
{{- define "headrace.dashboard" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}
{{- $dashboards := $root.Values.monitoring.dashboards -}}
{{- $operator := $dashboards.grafanaOperator -}}
{{- $namespace := $dashboards.namespace | default $root.Release.Namespace -}}
{{- $map := printf "%s-dashboard-%s" (include "headrace.fullname" $root) $name -}}
{{- $json := $root.Files.Get (printf "files/dashboards/%s.json" $name) -}}
{{- with $root.Values.mlflow.publicUrl | default $root.Values.mlflow.url -}}
{{- $json = $json | replace "http://127.0.0.1:5000" (. | trimSuffix "/") -}}
{{- else -}}
{{- /* Nobody knows where browsers reach MLflow: no variable of its address, no links there. */ -}}
{{- $json = regexReplaceAll `,?\s*\{[^{}]*("name": "mlflow"[^{}]*|"url": "\$\{mlflow:.*\s*)\}` $json "" -}}
{{- end -}}
{{- if or $dashboards.enabled $operator.enabled -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $map }}
  namespace: {{ $namespace }}
  labels:
    {{- include "headrace.labels" (list $root "dashboards") | nindent 4 }}
    {{- if $dashboards.enabled }}
    {{ $dashboards.label }}: {{ $dashboards.labelValue | quote }}
    {{- end }}
  {{- with $dashboards.folder }}
  annotations:
    grafana_folder: {{ . | quote }}
  {{- end }}
data:
  headrace-{{ $name }}.json: {{ $json | quote }}
{{- end }}
{{- if $operator.enabled }}
---
apiVersion: grafana.integreatly.org/v1beta1
kind: GrafanaDashboard
metadata:
  name: {{ $map }}
  namespace: {{ $namespace }}
  labels:
    {{- include "headrace.labels" (list $root "dashboards") | nindent 4 }}
spec:
  instanceSelector:
    {{- $operator.instanceSelector | default (dict "matchLabels" (dict "dashboards" "grafana")) | toYaml | nindent 4 }}
  allowCrossNamespaceImport: {{ $operator.allowCrossNamespaceImport }}
  resyncPeriod: {{ $operator.resyncPeriod }}
  {{- with $dashboards.folder }}
  folder: {{ . | quote }}
  {{- end }}
  configMapRef:
    name: {{ $map }}
    key: headrace-{{ $name }}.json
{{- end -}}
{{- end -}}
