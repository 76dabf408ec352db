{{/* Accounts and their Roles. */}}

{{/* The name of a component's account. Takes (list ROOT COMPONENT VALUES). */}}
{{- define "headrace.account" -}}
{{- $account := (index . 2).serviceAccount | default dict -}}
{{- $account.name | default (printf "%s-%s" (include "headrace.fullname" (index . 0)) (index . 1)) -}}
{{- end -}}

{{/* A component's account. Takes (list ROOT COMPONENT VALUES) and optionally annotations, over which
     those of the values win. */}}
{{- define "headrace.serviceAccount" -}}
{{- $root := index . 0 -}}{{- $account := (index . 2).serviceAccount -}}
{{- $annotations := dict -}}
{{- if gt (len .) 3 -}}{{- $annotations = index . 3 -}}{{- end -}}
{{- if $account.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "headrace.account" . }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "headrace.labels" (list $root (index . 1)) | nindent 4 }}
  {{- with merge (dict) ($account.annotations | default dict) $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}
{{- end -}}

{{/* Gives a component's account the Role of its name. Takes (list ROOT COMPONENT VALUES). */}}
{{- define "headrace.roleBinding" -}}
{{- $root := index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "headrace.metadata" (list $root (index . 1)) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "headrace.fullname" $root }}-{{ index . 1 }}
subjects:
  - kind: ServiceAccount
    name: {{ include "headrace.account" . }}
    namespace: {{ $root.Release.Namespace }}
{{- end -}}

{{/* Rules of Roles that several accounts have. */}}

{{- define "headrace.readEndpoints" -}}
- apiGroups: [headrace.dev]
  resources: [modelendpoints]
  verbs: [get, list, watch]
{{- end -}}

{{/* The definition of a kind, with the release's labels. Takes (list ROOT FILE). */}}
{{- define "headrace.definition" -}}
{{- $crd := (index . 0).Files.Get (index . 1) | fromYaml }}
{{- $labels := merge (fromYaml (include "headrace.labels" (list (index . 0) "crd"))) ($crd.metadata.labels | default dict) }}
{{- $annotations := merge (dict "helm.sh/resource-policy" "keep") ($crd.metadata.annotations | default dict) }}
{{- $_ := set $crd "metadata" (merge (dict "labels" $labels "annotations" $annotations) $crd.metadata) }}
{{- toYaml $crd }}
{{- end -}}

{{/* What lies in an endpoint's records, for whoever shows it. */}}
{{- define "headrace.readRecords" -}}
- apiGroups: [headrace.dev]
  resources: [endpointrecords]
  verbs: [get]
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
