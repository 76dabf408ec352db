{{/* The name of the policy that holds conversions' Jobs to their template, and of its binding. */}}
{{- define "headrace.jobsName" -}}
{{- printf "%s.%s.jobs.headrace.dev" (include "headrace.fullname" .) .Release.Namespace -}}
{{- end -}}

{{/* Whether the API server is to look at the Jobs that the controller makes. */}}
{{- define "headrace.jobsPolicy" -}}
{{- if and .Values.conversion.verifyJobs (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") -}}
true
{{- end -}}
{{- end -}}

{{/* What the template of these Jobs names, as JSON of lists: images; secrets, configMaps and claims;
     audiences of tokens; volumes of CSI, each with driver and attributes; volumes of other kinds, each by
     name and kind; and containers that values give privileges or capabilities (powers). */}}
{{- define "headrace.jobParts" -}}
{{- $pod := (include "headrace.conversionJob" . | fromYaml).spec.template.spec -}}
{{- $images := list -}}{{- $powers := list -}}{{- $secrets := list -}}{{- $configMaps := list -}}
{{- $claims := list -}}{{- $audiences := list -}}{{- $csi := list -}}{{- $others := list -}}
{{- range concat ($pod.initContainers | default list) $pod.containers -}}
{{- $images = append $images .image -}}
{{- $may := .securityContext | default dict -}}
{{- if or $may.privileged (dig "capabilities" "add" list $may) -}}{{- $powers = append $powers .name -}}{{- end -}}
{{- range .env -}}
{{- $secrets = append $secrets (dig "valueFrom" "secretKeyRef" "name" "" .) -}}
{{- $configMaps = append $configMaps (dig "valueFrom" "configMapKeyRef" "name" "" .) -}}
{{- end -}}
{{- range .envFrom -}}
{{- $secrets = append $secrets (dig "secretRef" "name" "" .) -}}
{{- $configMaps = append $configMaps (dig "configMapRef" "name" "" .) -}}
{{- end -}}
{{- end -}}
{{- range $pod.imagePullSecrets -}}{{- $secrets = append $secrets .name -}}{{- end -}}
{{- range $pod.volumes -}}
{{- $secrets = append $secrets (dig "secret" "secretName" "" .) -}}
{{- $secrets = append $secrets (dig "csi" "nodePublishSecretRef" "name" "" .) -}}
{{- $configMaps = append $configMaps (dig "configMap" "name" "" .) -}}
{{- $claims = append $claims (dig "persistentVolumeClaim" "claimName" "" .) -}}
{{- with .csi -}}{{- $csi = append $csi (dict "driver" .driver "attributes" (.volumeAttributes | default dict)) -}}{{- end -}}
{{- range dig "projected" "sources" list . -}}
{{- $secrets = append $secrets (dig "secret" "name" "" .) -}}
{{- $configMaps = append $configMaps (dig "configMap" "name" "" .) -}}
{{- with .serviceAccountToken -}}{{- $audiences = append $audiences (.audience | default "") -}}{{- end -}}
{{- end -}}
{{- $name := .name -}}
{{- range $kind, $_ := omit . "name" "emptyDir" "downwardAPI" "secret" "configMap" "projected" "persistentVolumeClaim" "csi" -}}
{{- $others = append $others (dict "name" $name "kind" $kind) -}}
{{- end -}}
{{- end -}}
{{- dict
  "images" (uniq $images) "powers" $powers "audiences" (uniq $audiences) "others" $others
  "secrets" ($secrets | uniq | compact) "configMaps" ($configMaps | uniq | compact)
  "claims" ($claims | uniq | compact) "csi" $csi | toJson -}}
{{- end -}}
