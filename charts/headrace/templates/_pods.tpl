{{/* What all pods share. */}}

{{/* An image's reference. Takes (list ROOT IMAGE). */}}
{{- define "headrace.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- with $root.Values.images.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest -}}@{{ $image.digest }}
{{- else -}}:{{ $image.tag | default $root.Values.images.tag | default $root.Chart.AppVersion }}{{- end -}}
{{- end -}}

{{/* A number without an exponent: values are read as floating point. */}}
{{- define "headrace.number" -}}
{{- if and (kindIs "float64" .) (eq (float64 (int64 .)) .) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end -}}

{{/* A dictionary as flags, by name. */}}
{{- define "headrace.flags" -}}
{{- $flags := list -}}
{{- range $name, $value := . -}}
{{- $flags = append $flags (printf "--%s=%s" $name (include "headrace.number" $value)) -}}
{{- end -}}
{{- toYaml $flags -}}
{{- end -}}

{{/* Annotations and labels of a component's pods, without the chart's version: what did not change is
     not restarted by an upgrade. Takes (list ROOT COMPONENT POD PORT), an empty PORT where there are
     no metrics, and optionally further annotations. */}}
{{- define "headrace.podMetadata" -}}
{{- $root := index . 0 -}}{{- $pod := index . 2 -}}{{- $port := index . 3 -}}
{{- $annotations := dict -}}
{{- if and $port $root.Values.monitoring.annotations -}}
{{- $annotations = dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString $port) "prometheus.io/path" "/metrics" -}}
{{- end -}}
{{- $own := dict -}}
{{- if gt (len .) 4 -}}{{- $own = index . 4 -}}{{- end -}}
{{- $labels := merge (fromYaml (include "headrace.selector" (list $root (index . 1)))) (dict "app.kubernetes.io/part-of" "headrace") $pod.labels $root.Values.commonLabels -}}
{{- $metadata := dict "labels" $labels -}}
{{- with merge (dict) $own $pod.annotations $annotations -}}
{{- $_ := set $metadata "annotations" . -}}
{{- end -}}
{{- toYaml $metadata -}}
{{- end -}}

{{/* Where pods run, who they are, what they may, and which containers values put beside the
     component's. Takes (list ROOT COMPONENT VALUES), VALUES with scheduling, pod and serviceAccount. No
     token of the API server is mounted; containers that need one mount headrace.tokenVolume. */}}
{{- define "headrace.podSpec" -}}
{{- $root := index . 0 -}}{{- $values := index . 2 -}}
{{- $scheduling := $values.scheduling -}}{{- $pod := $values.pod -}}
serviceAccountName: {{ include "headrace.account" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  {{- range $name := list "runAsUser" "runAsGroup" "fsGroup" }}
  {{- with index ($root.Values.podSecurityContext | default dict) $name }}
  {{ $name }}: {{ int64 . }}
  {{- end }}
  {{- end }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with $root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $scheduling.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $scheduling.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $scheduling.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $scheduling.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $scheduling.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with $pod.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with $pod.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "headrace.besides" $pod }}
initContainers:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The containers that values put before and beside a component's. Each has the bounds of the
     restricted profile but for those that it sets itself. Takes a component's pod. */}}
{{- define "headrace.besides" -}}
{{- $bounds := dict "allowPrivilegeEscalation" false "capabilities" (dict "drop" (list "ALL")) -}}
{{- $found := list -}}
{{- range .initContainers -}}
{{- $found = append $found (merge (dict) . (dict "securityContext" $bounds)) -}}
{{- end -}}
{{- range .sidecars -}}
{{- $found = append $found (merge (dict "restartPolicy" "Always") . (dict "securityContext" $bounds)) -}}
{{- end -}}
{{- with $found -}}{{- toYaml . -}}{{- end -}}
{{- end -}}

{{/* Variables out of Secrets and ConfigMaps: what headrace.credentials says, and what values add.
     Takes (list POD CREDENTIALS). */}}
{{- define "headrace.envFrom" -}}
{{- $pod := index . 0 -}}{{- $credentials := index . 1 | trim -}}
{{- if or $credentials $pod.extraEnvFrom }}
{{ $credentials | default "envFrom:" }}
{{- with $pod.extraEnvFrom }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Volumes of a component's values, and the mounts of them. Each takes the component's pod. */}}
{{- define "headrace.extraVolumes" -}}
{{- with .extraVolumes -}}{{- toYaml . -}}{{- end -}}
{{- end -}}

{{- define "headrace.extraMounts" -}}
{{- with .extraVolumeMounts -}}{{- toYaml . -}}{{- end -}}
{{- end -}}

{{/* How many old revisions of a Deployment or StatefulSet are kept. Takes a component's pod. */}}
{{- define "headrace.revisions" -}}
{{- if hasKey . "revisionHistoryLimit" -}}
revisionHistoryLimit: {{ int64 .revisionHistoryLimit }}
{{- end -}}
{{- end -}}

{{/* Spreads a component's pods over nodes and zones, unless values say how.
     Takes (list ROOT COMPONENT SCHEDULING). */}}
{{- define "headrace.topologySpread" -}}
{{- $scheduling := index . 2 -}}
topologySpreadConstraints:
{{- if $scheduling.topologySpreadConstraints }}
  {{- toYaml $scheduling.topologySpreadConstraints | nindent 2 }}
{{- else }}
{{- $selector := include "headrace.selector" (list (index . 0) (index . 1)) }}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- $selector | nindent 8 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A container's security context under the restricted profile. */}}
{{- define "headrace.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The token of the pod's account, as a volume that one container alone mounts. */}}
{{- define "headrace.tokenVolume" -}}
- name: api-token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3607
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                apiVersion: v1
                fieldPath: metadata.namespace
{{- end -}}

{{- define "headrace.tokenMount" -}}
- name: api-token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end -}}

{{/* Variables that every one of our processes gets, and those of its values, which win: a variable that is
     named twice is refused by an API server that applies (helm 4, Argo CD). Takes (list ROOT POD). */}}
{{- define "headrace.variables" -}}
{{- $own := (index . 1).env | default list -}}
{{- $values := list (list "OMP_NUM_THREADS" "1") (list "OPENBLAS_NUM_THREADS" "1") (list "TOKENIZERS_PARALLELISM" "false") -}}
{{- /* What keeps libraries from calling their makers, in images of your own too. */ -}}
{{- $values = concat $values (list (list "DO_NOT_TRACK" "1") (list "HF_HUB_DISABLE_TELEMETRY" "1") (list "MLFLOW_DISABLE_TELEMETRY" "true") (list "ORT_DISABLE_TELEMETRY" "1")) -}}
{{- if (index . 0).Values.trust.configMap -}}
{{- range list "SSL_CERT_FILE" "REQUESTS_CA_BUNDLE" "AWS_CA_BUNDLE" -}}
{{- $values = append $values (list . "/etc/headrace/trust/ca.crt") -}}
{{- end -}}
{{- end -}}
{{- $named := list -}}
{{- range $own -}}{{- $named = append $named .name -}}{{- end -}}
{{- $found := list -}}
{{- range $values -}}
{{- if not (has (first .) $named) -}}{{- $found = append $found (dict "name" (first .) "value" (last .)) -}}{{- end -}}
{{- end -}}
{{- concat $found $own | toYaml -}}
{{- end -}}

{{/* The bundle that headrace.variables names, for every container that has its variables. */}}
{{- define "headrace.trustMount" -}}
{{- if .Values.trust.configMap -}}
- {name: trust, mountPath: /etc/headrace/trust, readOnly: true}
{{- end -}}
{{- end -}}

{{- define "headrace.trustVolume" -}}
{{- with .Values.trust -}}
{{- if .configMap -}}
- name: trust
  configMap:
    name: {{ .configMap }}
    items:
      - {key: {{ .key }}, path: ca.crt}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Credentials as variables: a component's own where it has some, else those of store and MLflow that
     it needs. Takes (list ROOT WANTS VALUES), WANTS of "store" and "mlflow", the component's VALUES. */}}
{{- define "headrace.credentials" -}}
{{- $values := (index . 0).Values -}}{{- $wants := index . 1 -}}
{{- $secrets := list -}}
{{- with (index . 2).existingSecret -}}
{{- $secrets = append $secrets . -}}
{{- else -}}
{{- if has "store" $wants -}}{{- $secrets = append $secrets $values.packages.existingSecret -}}{{- end -}}
{{- if or (has "mlflow" $wants) (not $values.packages.storeUrl) -}}{{- $secrets = append $secrets $values.mlflow.existingSecret -}}{{- end -}}
{{- end -}}
{{- with compact (uniq $secrets) }}
envFrom:
  {{- range . }}
  - secretRef:
      name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Pods of a component: as many as asked for, or, where an autoscaler decides, as many as there are
     now. Without the line an upgrade that turns autoscaling on would first go down to one.
     Takes (list ROOT COMPONENT REPLICAS AUTOSCALING). */}}
{{- define "headrace.replicas" -}}
{{- $root := index . 0 -}}
{{- if not (index . 3).enabled -}}
replicas: {{ index . 2 }}
{{- else -}}
{{- $name := printf "%s-%s" (include "headrace.fullname" $root) (index . 1) -}}
{{- with lookup "apps/v1" "Deployment" $root.Release.Namespace $name -}}
replicas: {{ .spec.replicas }}
{{- end -}}
{{- end -}}
{{- end -}}
