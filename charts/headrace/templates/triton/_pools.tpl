{{/* Pools of Tritons: the default one is `triton`, each further one an entry of `triton.pools`. */}}

{{/* JSON of {POOL: COMPONENT}. */}}
{{- define "headrace.pools" -}}
{{- $found := dict "default" "triton" -}}
{{- range $pool, $_ := .Values.triton.pools -}}
{{- $_ := set $found $pool (printf "triton-%s" $pool) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* A pool's values as `triton` has them: its own over those of `triton`, which are replaced whole where
     they are maps in maps, such as a nodeSelector. Tritons of the user's own belong to one pool.
     Takes (list ROOT POOL). */}}
{{- define "headrace.poolValues" -}}
{{- $triton := (index . 0).Values.triton -}}
{{- $values := deepCopy $triton -}}
{{- if ne (index . 1) "default" -}}
{{- $_ := set $values "addresses" list -}}
{{- range $key, $value := index $triton.pools (index . 1) -}}
{{- if kindIs "map" $value -}}
{{- $kept := index $values $key -}}
{{- range $name, $inner := $value -}}
{{- $_ := set $kept $name $inner -}}
{{- end -}}
{{- else -}}
{{- $_ := set $values $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $values -}}
{{- end -}}

{{/* The components of the chart's own Tritons, as JSON. */}}
{{- define "headrace.tritons" -}}
{{- $found := list -}}
{{- range $pool, $component := fromJson (include "headrace.pools" .) -}}
{{- if not (fromJson (include "headrace.poolValues" (list $ $pool))).addresses -}}
{{- $found = append $found $component -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* The addresses of the user's own Tritons, by the component of each one's loader, as JSON. */}}
{{- define "headrace.ownTritons" -}}
{{- $found := dict -}}
{{- range $pool, $_ := fromJson (include "headrace.pools" .) -}}
{{- range $index, $address := (fromJson (include "headrace.poolValues" (list $ $pool))).addresses -}}
{{- $name := ternary (printf "loader-%d" $index) (printf "loader-%s-%d" $pool $index) (eq $pool "default") -}}
{{- $_ := set $found $name $address -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* The components of loaders beside the user's own Tritons, as JSON. */}}
{{- define "headrace.loaders" -}}
{{- fromJson (include "headrace.ownTritons" .) | keys | sortAlpha | toJson -}}
{{- end -}}

{{/* Not empty where models of any pool leave when nobody asks. */}}
{{- define "headrace.sleeps" -}}
{{- range $pool, $_ := fromJson (include "headrace.pools" .) -}}
{{- if (fromJson (include "headrace.poolValues" (list $ $pool))).idleSeconds }}yes{{ end -}}
{{- end -}}
{{- end -}}

{{/* Triton's image: that for GPUs in a pool that has some. Takes (list ROOT TRITON). */}}
{{- define "headrace.tritonImage" -}}
{{- $triton := index . 1 -}}
{{- $image := deepCopy $triton.image -}}
{{- if not $image.repository -}}
{{- $_ := set $image "repository" (ternary "headrace-triton-gpu" "headrace-triton" (gt (int64 $triton.gpus) 0)) -}}
{{- end -}}
{{- include "headrace.image" (list (index . 0) $image) -}}
{{- end -}}

{{/* What is wrong with a pool's device, said in a sentence. Takes (list NAME TRITON). */}}
{{- define "headrace.checkDevice" -}}
{{- $name := index . 0 -}}{{- $triton := index . 1 -}}
{{- if not $triton.addresses -}}
{{- if and (gt (int64 $triton.gpus) 0) (eq "headrace-triton" (base $triton.image.repository)) -}}
{{- fail (printf "\n\n%s.gpus is %d, and %s.image.repository names %s, the image for CPUs: leave it empty for headrace-triton-gpu." $name (int64 $triton.gpus) $name $triton.image.repository) -}}
{{- end -}}
{{- if and (gt (int64 $triton.gpus) 0) (eq $triton.device "cpu") -}}
{{- fail (printf "\n\n%s.device is cpu, and %s.gpus asks for %d GPUs, which nothing would use: set one of them." $name $name (int64 $triton.gpus)) -}}
{{- end -}}
{{- if and (eq (int64 $triton.gpus) 0) (eq $triton.device "gpu") -}}
{{- fail (printf "\n\n%s.device is gpu, and %s.gpus is 0: set %s.gpus to 1, so that its pods get a GPU." $name $name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
