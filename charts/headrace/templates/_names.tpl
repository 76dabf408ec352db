{{/* Names and labels. A component's name is FULLNAME-COMPONENT. */}}

{{- define "headrace.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "headrace.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "headrace.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "headrace.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects pods: never changes for a release. Takes (list ROOT COMPONENT). */}}
{{- define "headrace.selector" -}}
app.kubernetes.io/name: {{ include "headrace.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of an object; ours win over commonLabels. Takes (list ROOT COMPONENT). */}}
{{- define "headrace.labels" -}}
{{- $root := index . 0 -}}
{{- $labels := fromYaml (include "headrace.selector" .) -}}
{{- $_ := merge $labels (dict
  "app.kubernetes.io/part-of" "headrace"
  "app.kubernetes.io/managed-by" $root.Release.Service
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_")) $root.Values.commonLabels -}}
{{- toYaml $labels -}}
{{- end -}}

{{/* Name, namespace and labels of an object. Takes (list ROOT COMPONENT) and optionally a suffix. */}}
{{- define "headrace.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "headrace.fullname" $root }}-{{ index . 1 }}{{ with (rest (rest .)) }}-{{ first . }}{{ end }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "headrace.labels" (list $root (index . 1)) | nindent 2 }}
{{- end -}}

{{/* A Service's name in the cluster's DNS. Takes (list ROOT COMPONENT). */}}
{{- define "headrace.host" -}}
{{- $root := index . 0 -}}
{{- printf "%s-%s.%s.svc.%s" (include "headrace.fullname" $root) (index . 1) $root.Release.Namespace $root.Values.clusterDomain -}}
{{- end -}}
