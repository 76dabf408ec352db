{{/* The name of the policy that lets a loader write its own reports alone, and of its binding. */}}
{{- define "headrace.reportsName" -}}
{{- printf "%s.%s.reports.headrace.dev" (include "headrace.fullname" .) .Release.Namespace -}}
{{- end -}}

{{/* Whether the API server is to check which pod writes a report. Where the controller has the
     loaders' account, its own Lease can't be told from theirs. */}}
{{- define "headrace.reportsPolicy" -}}
{{- $loader := include "headrace.account" (list . "triton" .Values.triton) -}}
{{- $controller := include "headrace.account" (list . "controller" .Values.controller) -}}
{{- if and .Values.triton.loader.verifyReports (ne $loader $controller) (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") -}}
true
{{- end -}}
{{- end -}}
