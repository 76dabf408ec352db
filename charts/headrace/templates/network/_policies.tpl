{{/* NetworkPolicies. Each component has one, in templates/network; what they share is here. */}}

{{/* Pods of this release. Takes (list ROOT COMPONENT...). */}}
{{- define "headrace.pods" -}}
{{- $root := first . -}}
{{- range rest . }}
- podSelector:
    matchLabels:
      {{- include "headrace.selector" (list $root .) | nindent 6 }}
{{- end }}
{{- end -}}

{{/* Everybody in the cluster, where values name nobody. Takes a list of peers. */}}
{{- define "headrace.peersOrAll" -}}
{{- if . -}}{{- toYaml . -}}{{- else -}}- namespaceSelector: {}{{- end -}}
{{- end -}}

{{/* Leave to scrape ports. Takes (list ROOT PORT...); helm test asks there too. */}}
{{- define "headrace.fromMonitoring" -}}
{{- $root := first . -}}
- from:
    {{- include "headrace.peersOrAll" $root.Values.networkPolicy.monitoring | nindent 4 }}
    {{- include "headrace.pods" (list $root "test") | trim | nindent 4 }}
  ports:
    {{- range rest . }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end -}}

{{/* Where a component may go: DNS, and what it asks, in the release or outside. A policy can't name
     hosts: outside it is the ports of their addresses. Without CIDRs or peers there is no "to":
     0.0.0.0/0 would leave out pods and nodes with some network plugins. Takes (list ROOT WHAT...),
     WHAT of "api", "batches", "index" (packages of pyfuncs), "kafka", "mlflow", "sources", "store",
     "traces" and "tritons". */}}
{{- define "headrace.egress" -}}
{{- $root := first . -}}{{- $asks := rest . -}}
{{- $values := $root.Values -}}{{- $policy := $values.networkPolicy -}}
{{- if and (has "store" $asks) (not $values.packages.storeUrl) -}}{{- $asks = append $asks "mlflow" -}}{{- end -}}
{{- $known := dict
  "api" (list "https://api" "https://api:6443")
  "batches" (list $values.gateway.batches.url)
  "index" (ternary (list "https://index") list $values.triton.pyfunc.enabled)
  "kafka" $values.kafka.bootstrapServers
  "mlflow" (list $values.mlflow.url)
  "sources" $values.mlflow.sources
  "store" (list $values.packages.storeUrl)
  "traces" (list $values.gateway.traces.endpoint)
  "tritons" (fromJson (include "headrace.ownTritons" $root) | values | sortAlpha) -}}
{{- $ports := list -}}{{- $roles := false -}}
{{- range uniq $asks -}}
{{- range compact (get $known .) -}}
{{- $roles = or $roles (hasPrefix "s3:" .) -}}
{{- $host := first (splitList "/" (last (splitList "://" .))) -}}
{{- $port := trimPrefix ":" (regexFind ":[0-9]+$" $host) -}}
{{- if $port -}}{{- $ports = append $ports (int64 $port) -}}
{{- else if not (hasPrefix "file:" .) -}}{{- $ports = append $ports (ternary 80 443 (hasPrefix "http://" .) | int64) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- range $policy.externalPorts -}}{{- $ports = append $ports (int64 .) -}}{{- end -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- with uniq $ports }}
- ports:
    {{- range . }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- if or $policy.external $policy.externalPeers }}
  to:
    {{- range $policy.external }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
    {{- with $policy.externalPeers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
{{- end }}
{{- if $roles }}
# The agent of EKS Pod Identity on each node, which hands out the pod's role.
- to:
    - ipBlock: {cidr: 169.254.170.23/32}
    - ipBlock: {cidr: "fd00:ec2::23/128"}
  ports:
    - {port: 80, protocol: TCP}
{{- end }}
{{- if and (has "kafka" $asks) (not $values.kafka.bootstrapServers) }}
- to:
    {{- include "headrace.pods" (list $root "kafka") | trim | nindent 4 }}
  ports:
    - {port: 9092, protocol: TCP}
{{- end }}
{{- if and (has "mlflow" $asks) (not $values.mlflow.url) }}
- to:
    {{- include "headrace.pods" (list $root "mlflow") | trim | nindent 4 }}
  ports:
    - {port: 5000, protocol: TCP}
{{- end }}
{{- end -}}

{{/* The head of a policy. Takes (list ROOT COMPONENT). */}}
{{- define "headrace.policy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "headrace.metadata" . | nindent 2 }}
spec:
  policyTypes: [Ingress, Egress]
  podSelector:
    matchLabels:
      {{- include "headrace.selector" . | nindent 6 }}
{{- end -}}
