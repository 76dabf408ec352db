{{/* How callers come in from outside: what Ingresses and autoscalers of several components share. */}}

{{/* An Ingress. Takes (list ROOT COMPONENT SUFFIX VALUES SERVICE PORT PATH): VALUES as *.ingress, the
     Service's name and its port's, and the path of hosts that name none. */}}
{{- define "headrace.ingress" -}}
{{- $root := index . 0 -}}{{- $ingress := index . 3 -}}{{- $service := index . 4 -}}{{- $port := index . 5 -}}
{{- $paths := list (dict "path" (index . 6)) -}}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  {{- include "headrace.metadata" (concat (list $root (index . 1)) (compact (list (index . 2)))) | nindent 2 }}
  {{- with $ingress.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with $ingress.className }}
  ingressClassName: {{ . }}
  {{- end }}
  {{- with $ingress.tls }}
  tls:
    {{- range . }}
    - hosts:
        {{- if .hosts }}
        {{- toYaml .hosts | nindent 8 }}
        {{- else }}
        {{- range $ingress.hosts }}
        - {{ .host | quote }}
        {{- end }}
        {{- end }}
      {{- with .secretName }}
      secretName: {{ . }}
      {{- end }}
    {{- end }}
  {{- end }}
  rules:
    {{- range $ingress.hosts }}
    - host: {{ .host | quote }}
      http:
        paths:
          {{- range .paths | default $paths }}
          - path: {{ .path | quote }}
            pathType: {{ .pathType | default "Prefix" }}
            backend:
              service:
                name: {{ $service }}
                port:
                  name: {{ $port }}
          {{- end }}
    {{- end }}
{{- end -}}

{{/* The gateways' Ingress for HTTP, as *.ingress: `host` and `tlsSecret` are its first of both. JSON. */}}
{{- define "headrace.gatewayIngress" -}}
{{- $ingress := .Values.gateway.ingress -}}
{{- $hosts := $ingress.hosts -}}{{- $tls := $ingress.tls -}}
{{- with $ingress.host -}}
{{- $hosts = prepend $hosts (dict "host" .) -}}
{{- if $ingress.tlsSecret -}}{{- $tls = prepend $tls (dict "hosts" (list .) "secretName" $ingress.tlsSecret) -}}{{- end -}}
{{- end -}}
{{- dict "className" $ingress.className "annotations" $ingress.annotations "hosts" $hosts "tls" $tls | toJson -}}
{{- end -}}

{{/* How fast an autoscaler moves. Takes (list BEHAVIOR SECONDS): the values, and seconds for which the
     need must last where they say nothing, by "scaleUp" and "scaleDown". */}}
{{- define "headrace.behavior" -}}
{{- $behavior := deepCopy (index . 0 | default dict) -}}
{{- range $direction, $seconds := index . 1 -}}
{{- $rules := get $behavior $direction | default dict -}}
{{- if not (hasKey $rules "stabilizationWindowSeconds") -}}
{{- $_ := set $rules "stabilizationWindowSeconds" $seconds -}}
{{- end -}}
{{- $_ := set $behavior $direction $rules -}}
{{- end -}}
{{- with $behavior -}}{{- toYaml . -}}{{- end -}}
{{- end -}}

{{/* Tokens in flight a pod that gateways' autoscaler aims at; 0: none. */}}
{{- define "headrace.tokensInFlightPerPod" -}}
{{- $scaling := .Values.gateway.autoscaling -}}
{{- $apis := .Capabilities.APIVersions -}}
{{- $adapter := or ($apis.Has "custom.metrics.k8s.io/v1beta1") ($apis.Has "custom.metrics.k8s.io/v1beta2") -}}
{{- if not (kindIs "invalid" $scaling.tokensInFlightPerPod) -}}
{{- int64 $scaling.tokensInFlightPerPod -}}
{{- else if or $adapter (eq $scaling.kind "keda") -}}
{{- max 1 (div (int64 .Values.gateway.tokensInFlight) 2) -}}
{{- else -}}0{{- end -}}
{{- end -}}
