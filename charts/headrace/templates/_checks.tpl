{{/* What is wrong with the values is said here, in a sentence, before anything is installed. The schema
     has refused what is unknown or mistyped before. Included by checks.yaml. */}}

{{- define "headrace.checkValues" -}}
{{- $values := .Values -}}
{{- if and $values.gateway.ingress.enabled (not $values.gateway.ingress.host) (not $values.gateway.ingress.hosts) -}}
{{- fail "\n\ngateway.ingress.enabled needs gateway.ingress.host, the name that callers use, or several in gateway.ingress.hosts." -}}
{{- end -}}
{{- if and $values.gateway.grpcIngress.enabled (not $values.gateway.grpcIngress.hosts) -}}
{{- fail "\n\ngateway.grpcIngress.enabled needs gateway.grpcIngress.hosts, the names that callers use." -}}
{{- end -}}
{{- if and $values.gateway.grpcIngress.enabled (not $values.gateway.grpc) -}}
{{- fail "\n\ngateway.grpcIngress.enabled needs gateway.grpc." -}}
{{- end -}}
{{- with $values.gateway.service -}}
{{- if and .loadBalancerClass (ne .type "LoadBalancer") -}}
{{- fail "\n\ngateway.service.loadBalancerClass needs gateway.service.type LoadBalancer." -}}
{{- end -}}
{{- if and .externalTrafficPolicy (eq .type "ClusterIP") -}}
{{- fail "\n\ngateway.service.externalTrafficPolicy needs gateway.service.type NodePort or LoadBalancer." -}}
{{- end -}}
{{- if and (gt (len .ipFamilies) 1) (not (contains "DualStack" .ipFamilyPolicy)) -}}
{{- fail "\n\ngateway.service.ipFamilies names two, which needs gateway.service.ipFamilyPolicy PreferDualStack or RequireDualStack." -}}
{{- end -}}
{{- end -}}
{{- include "headrace.checkUi" $values.stats.evaluate -}}
{{- with $values.gateway.autoscaling -}}
{{- if and .enabled (not .cpuPercent) (not .cpuMillicores) (eq "0" (include "headrace.tokensInFlightPerPod" $)) -}}
{{- fail "\n\ngateway.autoscaling has nothing to scale by: set gateway.autoscaling.cpuMillicores, or gateway.autoscaling.tokensInFlightPerPod, which with kind hpa needs a metrics adapter." -}}
{{- end -}}
{{- end -}}
{{- if and $values.gateway.gatewayApi.enabled (not $values.gateway.gatewayApi.parentRefs) -}}
{{- fail "\n\ngateway.gatewayApi.enabled needs gateway.gatewayApi.parentRefs, the Gateways to attach to." -}}
{{- end -}}
{{- range $values.gateway.gatewayApi.grpcHostnames -}}
{{- if has . $values.gateway.gatewayApi.hostnames -}}
{{- fail (printf "\n\ngateway.gatewayApi.grpcHostnames and hostnames both name %s: a Gateway takes one kind of route for a name." .) -}}
{{- end -}}
{{- end -}}
{{- if and $values.gateway.gatewayApi.grpcHostnames (not $values.gateway.grpc) -}}
{{- fail "\n\ngateway.gatewayApi.grpcHostnames needs gateway.grpc." -}}
{{- end -}}
{{- if and (not $values.packages.storeUrl) (regexMatch "^https?://[^/]+/." $values.mlflow.url) -}}
{{- fail "\n\nmlflow.url has a path, under which MLflow's artifact store can't be reached: name a store in packages.storeUrl." -}}
{{- end -}}
{{- if hasKey $values.triton.pools "default" -}}
{{- fail "\n\ntriton.pools.default: the pool `default` is `triton` itself: set its values there." -}}
{{- end -}}
{{- $scaled := dict "gateway" $values.gateway -}}
{{- range $pool, $_ := fromJson (include "headrace.pools" .) -}}
{{- $name := ternary "triton" (printf "triton.pools.%s" $pool) (eq $pool "default") -}}
{{- $triton := fromJson (include "headrace.poolValues" (list $ $pool)) -}}
{{- include "headrace.checkDevice" (list $name $triton) -}}
{{- $_ := set $scaled $name $triton -}}
{{- end -}}
{{- range $name, $component := $scaled -}}
{{- $scaling := $component.autoscaling -}}
{{- if and $scaling.enabled (gt (int64 $scaling.minReplicas) (int64 $scaling.maxReplicas)) -}}
{{- fail (printf "\n\n%s.autoscaling.minReplicas is above %s.autoscaling.maxReplicas." $name $name) -}}
{{- end -}}
{{- end -}}
{{- if and $values.kafka.bootstrapServers (eq (int64 $values.kafka.replication) 1) (gt (len $values.kafka.bootstrapServers) 2) -}}
{{- fail "\n\nkafka.replication is 1 on a Kafka of several brokers: the loss of one broker's disk would lose statistics. Set kafka.replication to 3." -}}
{{- end -}}
{{- if and $values.kafka.existingSecret (not $values.kafka.bootstrapServers) -}}
{{- fail "\n\nkafka.existingSecret signs in to your own Kafka, which kafka.bootstrapServers must name: the embedded one asks for nothing." -}}
{{- end -}}
{{- if and $values.kafka.tokenAudience (not $values.kafka.existingSecret) -}}
{{- fail "\n\nkafka.tokenAudience needs kafka.existingSecret, whose key mechanism is OAUTHBEARER." -}}
{{- end -}}
{{- if and $values.mlflow.existingSecret (not $values.mlflow.url) -}}
{{- fail "\n\nmlflow.existingSecret signs in to your own MLflow, which mlflow.url must name: the embedded one asks for nothing." -}}
{{- end -}}
{{- if $values.mlflow.workspaces -}}
{{- if not $values.mlflow.url -}}
{{- fail "\n\nmlflow.workspaces are those of your own MLflow, which mlflow.url must name: the embedded one has none." -}}
{{- end -}}
{{- if or (not $values.packages.storeUrl) (hasPrefix "mlflow-artifacts+" $values.packages.storeUrl) -}}
{{- fail "\n\nThe packages of all mlflow.workspaces would lie in one of them, where its team could read them: name a store in packages.storeUrl." -}}
{{- end -}}
{{- range $_, $source := $values.mlflow.sources -}}
{{- if not (contains "{workspace}" $source) -}}
{{- fail (printf "\n\nA version of one of mlflow.workspaces could name the files of another below %s of mlflow.sources: write {workspace} for the workspace's name, for instance s3://models/workspaces/{workspace}." $source) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $_, $server := $values.kafka.bootstrapServers -}}
{{- if has (regexReplaceAll ":[0-9]+$" $server "") (list "localhost" "127.0.0.1") -}}
{{- fail (printf "\n\nkafka.bootstrapServers names %s, which in a pod is the pod itself: name the brokers as the cluster reaches them." $server) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Nobody may look at /ui from outside whom no one has asked for a login. Takes evaluate's values. */}}
{{- define "headrace.checkUi" -}}
{{- $ui := .ui -}}
{{- $published := or $ui.ingress.enabled $ui.gatewayApi.enabled -}}
{{- if and $published (not $ui.authentication) -}}
{{- fail "\n\n/ui asks for no login, so it is not published without one in front: set stats.evaluate.ui.authentication to edge if the Ingress controller or Gateway asks, or to sidecar if a proxy in the pod does (docs/ui.md)." -}}
{{- end -}}
{{- if and $ui.ingress.enabled (not $ui.ingress.hosts) -}}
{{- fail "\n\nstats.evaluate.ui.ingress.enabled needs stats.evaluate.ui.ingress.hosts." -}}
{{- end -}}
{{- if and $ui.gatewayApi.enabled (not $ui.gatewayApi.parentRefs) -}}
{{- fail "\n\nstats.evaluate.ui.gatewayApi.enabled needs stats.evaluate.ui.gatewayApi.parentRefs, the Gateways to attach to." -}}
{{- end -}}
{{- if and $ui.ingress.enabled (eq $ui.authentication "edge") (not $ui.ingress.annotations) -}}
{{- fail "\n\nstats.evaluate.ui.authentication is edge, and stats.evaluate.ui.ingress has no annotations by which its controller would ask for a login (docs/ui.md)." -}}
{{- end -}}
{{- if and (eq $ui.authentication "sidecar") (not .pod.sidecars) -}}
{{- fail "\n\nstats.evaluate.ui.authentication is sidecar, and stats.evaluate.pod.sidecars has none (docs/ui.md)." -}}
{{- end -}}
{{- end -}}

{{/* Two components whose accounts the chart makes can't have one name. */}}
{{- define "headrace.checkAccounts" -}}
{{- $values := .Values -}}
{{- $components := dict "gateway" $values.gateway "controller" $values.controller "conversion" $values.conversion "triton" $values.triton "stats.fold" $values.stats.fold "stats.evaluate" $values.stats.evaluate "mlflow.embedded" $values.mlflow.embedded "kafka.embedded" $values.kafka.embedded -}}
{{- $seen := dict -}}
{{- range $path, $component := $components -}}
{{- $account := $component.serviceAccount -}}
{{- if and $account.create $account.name -}}
{{- with get $seen $account.name -}}
{{- fail (printf "\n\n%s.serviceAccount and %s.serviceAccount both make an account %q: each component has rights of its own. Make it yourself (serviceAccount.create=false) where they are to share it." . $path $account.name) -}}
{{- end -}}
{{- $_ := set $seen $account.name $path -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Secrets that values name, by the value's name: each Secret, and the keys that it can't do without. */}}
{{- define "headrace.namedSecrets" -}}
{{- $values := .Values -}}
{{- $webhook := $values.mlflow.webhook -}}
{{- $named := dict
  "packages.existingSecret" (list $values.packages.existingSecret)
  "mlflow.existingSecret" (list $values.mlflow.existingSecret)
  "kafka.existingSecret" (list $values.kafka.existingSecret)
  "controller.existingSecret" (list $values.controller.existingSecret)
  "controller.indexKey.existingSecret" (list $values.controller.indexKey.existingSecret $values.controller.indexKey.key)
  "conversion.existingSecret" (list $values.conversion.existingSecret)
  "triton.existingSecret" (list $values.triton.existingSecret)
  "gateway.existingSecret" (list $values.gateway.existingSecret)
  "stats.evaluate.existingSecret" (list $values.stats.evaluate.existingSecret)
  "gateway.tls.existingSecret" (list $values.gateway.tls.existingSecret "tls.crt" "tls.key")
  "triton.tls.existingSecret" (list $values.triton.tls.existingSecret "ca.crt" "tls.crt" "tls.key")
  "gateway.keys.existingSecret" (list $values.gateway.keys.existingSecret $values.gateway.keys.key) -}}
{{- $kafka := (lookup "v1" "Secret" .Release.Namespace $values.kafka.existingSecret).data | default dict -}}
{{- if and (eq (get $kafka "mechanism" | b64dec | trim) "OAUTHBEARER") (not (or $values.kafka.tokenAudience (hasKey $kafka "token"))) -}}
{{- $_ := set $named "kafka.existingSecret" (list $values.kafka.existingSecret "token-url" "client-id" "client-secret") -}}
{{- else if hasKey $kafka "username" -}}
{{- $_ := set $named "kafka.existingSecret" (list $values.kafka.existingSecret "password") -}}
{{- end -}}
{{- if $values.gateway.feedback.enabled -}}
{{- $_ := set $named "gateway.feedback.existingSecret" (list $values.gateway.feedback.existingSecret $values.gateway.feedback.key) -}}
{{- end -}}
{{- if $webhook.enabled -}}
{{- $keys := ternary (list $webhook.key) (list $webhook.key "encryption") (not (empty $values.mlflow.url)) -}}
{{- $_ := set $named "mlflow.webhook.existingSecret" (prepend $keys $webhook.existingSecret) -}}
{{- end -}}
{{- toJson $named -}}
{{- end -}}

{{/* A Secret or ConfigMap that a value names must be there, with its keys. Takes (list ROOT VALUE KIND NAME KEYS). */}}
{{- define "headrace.checkNamed" -}}
{{- $space := (index . 0).Release.Namespace -}}{{- $value := index . 1 -}}{{- $kind := index . 2 -}}{{- $name := index . 3 -}}
{{- $found := lookup "v1" $kind $space $name -}}
{{- if not $found -}}
{{- fail (printf "\n\n%s names the %s %q, and the namespace %q has none of that name: make it first (docs/install.md), or mend the value." $value $kind $name $space) -}}
{{- end -}}
{{- range $key := index . 4 -}}
{{- if not (or (hasKey ($found.data | default dict) $key) (hasKey ($found.binaryData | default dict) $key)) -}}
{{- fail (printf "\n\n%s names the %s %q of the namespace %q, which lacks the key %q (docs/install.md)." $value $kind $name $space $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Asks the cluster. Without one (helm template) every namespace is empty, and nothing is said. */}}
{{- define "headrace.checkCluster" -}}
{{- $root := . -}}
{{- $space := .Release.Namespace -}}
{{- /* A namespace that helm has yet to make has no Secrets. */}}
{{- if or (lookup "v1" "ServiceAccount" $space "default") (lookup "v1" "Namespace" "" "kube-system") -}}
{{- range $value, $named := fromJson (include "headrace.namedSecrets" .) -}}
{{- with first $named -}}
{{- include "headrace.checkNamed" (list $root $value "Secret" . (rest $named)) -}}
{{- end -}}
{{- end -}}
{{- with .Values.trust -}}
{{- if .configMap -}}
{{- include "headrace.checkNamed" (list $root "trust.configMap" "ConfigMap" .configMap (list .key)) -}}
{{- end -}}
{{- end -}}
{{- include "headrace.checkNamespace" . -}}
{{- end -}}
{{- if and .Values.crd.install (lookup "v1" "Namespace" "" "kube-system") -}}
{{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "modelendpoints.headrace.dev" -}}
{{- $name := dig "metadata" "annotations" "meta.helm.sh/release-name" "" . -}}
{{- $of := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" . -}}
{{- if and $name (or (ne $name $root.Release.Name) (ne $of $space)) -}}
{{- fail (printf "\n\nThis cluster's ModelEndpoint definition belongs to the release %q of the namespace %q. If that release still runs, install this one in a namespace of its own and set crd.install=false: it goes on upgrading the definition. If it is gone, take the definition over:\n\nkubectl annotate crd modelendpoints.headrace.dev endpointrecords.headrace.dev --overwrite meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s" $name $of $root.Release.Name $space) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $classes := (lookup "storage.k8s.io/v1" "StorageClass" "" "").items -}}
{{- if lookup "v1" "Namespace" "" "kube-system" -}}
{{- range $_, $part := fromJsonArray (include "headrace.volumes" .) -}}
{{- $default := false -}}{{- $known := false -}}
{{- range $class := $classes -}}
{{- if eq (dig "metadata" "annotations" "storageclass.kubernetes.io/is-default-class" "false" $class) "true" -}}{{- $default = true -}}{{- end -}}
{{- if eq $class.metadata.name $part.class -}}{{- $known = true -}}{{- end -}}
{{- end -}}
{{- if and (not $part.class) (not $default) -}}
{{- fail (printf "\n\n%s wants a volume, and this cluster has no default StorageClass: name one as %s.storageClass, or set %s.enabled=false (what it stores is then lost with its pod)." $part.value $part.value $part.value) -}}
{{- else if and $part.class (ne $part.class "-") (not $known) -}}
{{- fail (printf "\n\n%s.storageClass is %q, and this cluster has no such StorageClass." $part.value $part.class) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A namespace has one release: two controllers would judge the same endpoints. */}}
{{- define "headrace.checkNamespace" -}}
{{- $root := . -}}
{{- range $each := (lookup "apps/v1" "Deployment" .Release.Namespace "").items -}}
{{- $labels := $each.metadata.labels | default dict -}}
{{- $release := get $labels "app.kubernetes.io/instance" -}}
{{- $is := and (eq (get $labels "app.kubernetes.io/part-of") "headrace") (eq (get $labels "app.kubernetes.io/component") "controller") -}}
{{- if and $is (ne $release $root.Release.Name) -}}
{{- fail (printf "\n\nThe namespace %q has the release %q of Headrace already, and two controllers would judge the same endpoints: install this one in a namespace of its own (helm install --namespace). If that release is gone, delete what it left: kubectl delete deployment --namespace %s %s" $root.Release.Namespace $release $root.Release.Namespace $each.metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The volumes that will be asked for: JSON of {value, class}. */}}
{{- define "headrace.volumes" -}}
{{- $found := list -}}
{{- if and (not .Values.mlflow.url) .Values.mlflow.embedded.persistence.enabled -}}
{{- $found = append $found (dict "value" "mlflow.embedded.persistence" "class" .Values.mlflow.embedded.persistence.storageClass) -}}
{{- end -}}
{{- if and (not .Values.kafka.bootstrapServers) .Values.kafka.embedded.persistence.enabled -}}
{{- $found = append $found (dict "value" "kafka.embedded.persistence" "class" .Values.kafka.embedded.persistence.storageClass) -}}
{{- end -}}
{{- if .Values.stats.evaluate.persistence.enabled -}}
{{- $found = append $found (dict "value" "stats.evaluate.persistence" "class" .Values.stats.evaluate.persistence.storageClass) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* A claim's spec. */}}
{{- define "headrace.claim" -}}
accessModes: [ReadWriteOnce]
{{- with .storageClass }}
storageClassName: {{ ternary "\"\"" . (eq . "-") }}
{{- end }}
resources:
  requests:
    storage: {{ .size }}
{{- end -}}
