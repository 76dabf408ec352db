{{/* Where things are: the chart's own parts, or those that the values name. */}}

{{- define "headrace.gatewayScheme" -}}
{{- ternary "https" "http" (not (empty .Values.gateway.tls.existingSecret)) -}}
{{- end -}}

{{- define "headrace.mlflowUrl" -}}
{{- .Values.mlflow.url | default (printf "http://%s:5000" (include "headrace.host" (list . "mlflow"))) | trimSuffix "/" -}}
{{- end -}}

{{/* Where MLflow reaches the controller with its webhooks. */}}
{{- define "headrace.webhookUrl" -}}
{{- .Values.mlflow.webhook.url | default (printf "http://%s:9305/" (include "headrace.host" (list . "controller"))) -}}
{{- end -}}

{{- define "headrace.webhookSecret" -}}
{{- .Values.mlflow.webhook.existingSecret | default (printf "%s-webhook" (include "headrace.fullname" .)) -}}
{{- end -}}

{{- define "headrace.kafkaBootstrap" -}}
{{- if .Values.kafka.bootstrapServers -}}
{{- join "," .Values.kafka.bootstrapServers -}}
{{- else -}}
{{- printf "%s:9092" (include "headrace.host" (list . "kafka")) -}}
{{- end -}}
{{- end -}}

{{/* The port of evaluate's pod where who looks at the page /ui has been asked for a login. */}}
{{- define "headrace.uiPort" -}}
{{- $ui := .Values.stats.evaluate.ui -}}
{{- ternary (int64 $ui.sidecarPort) 9300 (eq $ui.authentication "sidecar") -}}
{{- end -}}

{{/* The folder of what signs in to Kafka, as a flag. */}}
{{- define "headrace.kafkaLogin" -}}
{{- if .Values.kafka.existingSecret -}}/etc/headrace/kafka{{- end -}}
{{- end -}}

{{- define "headrace.kafkaLoginMount" -}}
{{- if .Values.kafka.existingSecret -}}
- {name: kafka-login, mountPath: /etc/headrace/kafka, readOnly: true}
{{- end -}}
{{- end -}}

{{- define "headrace.kafkaLoginVolume" -}}
{{- with .Values.kafka.existingSecret -}}
- name: kafka-login
  {{- if $.Values.kafka.tokenAudience }}
  projected:
    defaultMode: 0440
    sources:
      - secret: {name: {{ . }}}
      - serviceAccountToken: {audience: {{ $.Values.kafka.tokenAudience | quote }}, path: token}
  {{- else }}
  secret:
    secretName: {{ . }}
    defaultMode: 0440
  {{- end }}
{{- end -}}
{{- end -}}

{{/* MLflow's artifact store, over whichever scheme MLflow is asked. */}}
{{- define "headrace.storeUrl" -}}
{{- if .Values.packages.storeUrl -}}
{{- trimSuffix "/" .Values.packages.storeUrl -}}
{{- else -}}
{{- printf "mlflow-artifacts+%s/headrace/packages" (include "headrace.mlflowUrl" .) -}}
{{- end -}}
{{- end -}}

{{/* The endpoints: the custom resources of this namespace. */}}
{{- define "headrace.endpoints" -}}
{{- printf "kubernetes://%s" .Release.Namespace -}}
{{- end -}}

{{- define "headrace.autoEndpoints" -}}
{{- if kindIs "bool" .Values.autoEndpoints -}}{{ .Values.autoEndpoints }}{{- else -}}{{ not .Values.mlflow.url }}{{- end -}}
{{- end -}}
