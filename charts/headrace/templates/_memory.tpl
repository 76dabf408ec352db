{{/* Arithmetic of memory: what /dev/shm must hold, and limits that count it. */}}

{{/* A quantity of memory in bytes. */}}
{{- define "headrace.bytes" -}}
{{- $text := toString . -}}
{{- $units := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- $number := float64 (trimSuffix $unit $text) -}}
{{- if $unit -}}{{- $number = mulf $number (get $units $unit) -}}{{- end -}}
{{- int64 (ceil $number) -}}
{{- end -}}

{{/* Whole cores that Triton's container may use or, without a limit, is promised. One for Tritons of
     the user's own, whose cores are not known here. */}}
{{- define "headrace.tritonCores" -}}
{{- $triton := .Values.triton -}}
{{- $limits := $triton.resources.limits | default dict -}}
{{- $requests := $triton.resources.requests | default dict -}}
{{- $cores := $limits.cpu | default $requests.cpu | default 1 | toString -}}
{{- $whole := ternary (div (trimSuffix "m" $cores | int64) 1000) (floor (float64 $cores) | int64) (hasSuffix "m" $cores) -}}
{{- if $triton.addresses -}}1{{- else -}}{{- max 1 $whole -}}{{- end -}}
{{- end -}}

{{/* Memory of Triton's container for models, in MiB: the limit, else the request; 0 for Tritons of
     the user's own. */}}
{{- define "headrace.tritonMegabytes" -}}
{{- $triton := .Values.triton -}}
{{- $limits := $triton.resources.limits | default dict -}}
{{- $requests := $triton.resources.requests | default dict -}}
{{- $memory := $limits.memory | default $requests.memory -}}
{{- if or (not $memory) $triton.addresses -}}0{{- else -}}
{{- div (include "headrace.bytes" $memory | int64) 1048576 -}}
{{- end -}}
{{- end -}}

{{/* Most copies of a model whose endpoint names no number: one for each core, at most 16, and one on
     each GPU. */}}
{{- define "headrace.autoInstances" -}}
{{- if .Values.triton.gpus -}}1{{- else -}}
{{- min 16 (include "headrace.tritonCores" . | int64) -}}
{{- end -}}
{{- end -}}

{{/* Bytes of shared memory. An instance of a Python-backed model holds one batch's tensors at a time,
     in and out, and its region doubles as it grows: token ids, mask and types of 8 bytes, answers of
     4. 1 MiB an instance and 32 MiB are Triton's own. In whole MiB. */}}
{{- define "headrace.sharedMemoryMegabytes" -}}
{{- $memory := .Values.triton.sharedMemory -}}
{{- $perToken := add 24 (mul 4 (int64 $memory.outputsPerToken)) -}}
{{- $perText := add (mul (int64 $memory.maxTokens) $perToken) (mul 4 (int64 $memory.outputsPerText)) -}}
{{- $perInstance := add 1048576 (mul 2 (int64 $memory.maxBatchSize) $perText) -}}
{{- $instances := max (int64 $memory.instances) (include "headrace.autoInstances" . | int64) -}}
{{- $all := mul (int64 $memory.models) $instances $perInstance -}}
{{- add 32 (div (add $all 1048575) 1048576) -}}
{{- end -}}

{{/* Triton's resources: memory of its values with the shared memory on top, and GPUs. */}}
{{- define "headrace.tritonResources" -}}
{{- $triton := .Values.triton -}}
{{- $resources := deepCopy $triton.resources -}}
{{- $shared := int64 (include "headrace.sharedMemoryMegabytes" .) -}}
{{- range $kind := list "requests" "limits" -}}
{{- $quantities := index $resources $kind | default dict -}}
{{- with $quantities.memory -}}
{{- $bytes := int64 (include "headrace.bytes" .) -}}
{{- $_ := set $quantities "memory" (printf "%dMi" (add $shared (div (add $bytes 1048575) 1048576))) -}}
{{- end -}}
{{- if and $triton.gpus (eq $kind "limits") -}}
{{- $_ := set $quantities $triton.gpuResource (int64 $triton.gpus) -}}
{{- end -}}
{{- $_ := set $resources $kind $quantities -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}
