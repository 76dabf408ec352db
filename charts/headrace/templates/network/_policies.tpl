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

{{- define "headrace.toDns" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end -}}

{{/* Leave to reach what is outside of the chart: the API server, the object store, and those parts
     that the values name. A policy can't name hosts, so ports are all that can be said. Without CIDRs
     or peers there is no "to": 0.0.0.0/0 would leave out pods and nodes with some network plugins. */}}
{{- define "headrace.toOutside" -}}
{{- $policy := .Values.networkPolicy -}}
{{- $ports := list (int64 443) (int64 6443) -}}
{{- range $policy.externalPorts -}}{{- $ports = append $ports (int64 .) -}}{{- end -}}
{{- range concat .Values.kafka.bootstrapServers (fromJson (include "headrace.ownTritons" .) | values | sortAlpha) -}}
{{- $ports = append $ports (int64 (regexFind "[0-9]+$" .)) -}}
{{- end -}}
{{- range compact (list .Values.mlflow.url .Values.packages.storeUrl .Values.gateway.traces.endpoint) -}}
{{- $port := regexFind ":[0-9]+" (trimPrefix (first (splitList "://" .)) .) -}}
{{- if $port -}}{{- $ports = append $ports (int64 (trimPrefix ":" $port)) -}}
{{- else if hasPrefix "http://" . -}}{{- $ports = append $ports (int64 80) -}}{{- end -}}
{{- end -}}
- ports:
    {{- range uniq $ports }}
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
{{- end -}}

{{- define "headrace.toKafka" -}}
{{- if not .Values.kafka.bootstrapServers -}}
- to:
    {{- include "headrace.pods" (list . "kafka") | trim | nindent 4 }}
  ports:
    - {port: 9092, protocol: TCP}
{{- end -}}
{{- end -}}

{{- define "headrace.toMlflow" -}}
{{- if not .Values.mlflow.url -}}
- to:
    {{- include "headrace.pods" (list . "mlflow") | trim | nindent 4 }}
  ports:
    - {port: 5000, protocol: TCP}
{{- end -}}
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
