{{/* Rules of Roles that several accounts have. */}}

{{- define "headrace.readEndpoints" -}}
- apiGroups: [headrace.dev]
  resources: [modelendpoints]
  verbs: [get, list, watch]
{{- end -}}

{{/* Loaders' reports are Leases that their pods own. */}}
{{- define "headrace.readReports" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch]
{{- end -}}

{{/* The pods behind the gateways' own Service: they share the rates of keys. */}}
{{- define "headrace.readSlices" -}}
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
{{- end -}}

{{- define "headrace.writeReports" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, patch, delete]
{{- end -}}
