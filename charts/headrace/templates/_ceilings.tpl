{{/* The operator's ceilings as the services' flag has them; empty where there is none. */}}
{{- define "headrace.ceilings" -}}
{{- $words := list -}}
{{- with .Values.ceilings.pools -}}
{{- $words = append $words (printf "pools=%s" (join "|" .)) -}}
{{- end -}}
{{- range $name, $most := omit .Values.ceilings "policy" "pools" -}}
{{- if not (kindIs "invalid" $most) -}}
{{- $words = append $words (printf "%s=%s" $name (include "headrace.number" $most)) -}}
{{- end -}}
{{- end -}}
{{- join "," $words -}}
{{- end -}}

{{/* The name of the policy and its binding: they belong to the cluster, so that a namespace's is in it. */}}
{{- define "headrace.ceilingsName" -}}
{{- printf "%s.%s.ceilings.headrace.dev" (include "headrace.fullname" .) .Release.Namespace -}}
{{- end -}}

{{/* Whether the API server is to hold endpoints to the ceilings. */}}
{{- define "headrace.ceilingsPolicy" -}}
{{- if and .Values.ceilings.policy (include "headrace.ceilings" .) (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") -}}
true
{{- end -}}
{{- end -}}
