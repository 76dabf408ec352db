{{/* The name of the policy that holds the users of commands to be true, and of its binding. */}}
{{- define "headrace.commandsName" -}}
{{- printf "%s.%s.commands.headrace.dev" (include "headrace.fullname" .) .Release.Namespace -}}
{{- end -}}

{{/* Whether the API server is to check who writes a command. */}}
{{- define "headrace.commandsPolicy" -}}
{{- if and .Values.commands.verifyUser (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") -}}
true
{{- end -}}
{{- end -}}
