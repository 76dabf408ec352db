{{- define "headrace.conversionJob" -}}
{{- $conversion := .Values.conversion -}}
apiVersion: batch/v1
kind: Job
metadata:
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "headrace.labels" (list . "conversion") | nindent 4 }}
spec:
  # A version that can't be converted is not tried again here: the controller decides.
  backoffLimit: 0
  activeDeadlineSeconds: {{ int64 $conversion.timeoutSeconds }}
  ttlSecondsAfterFinished: {{ int64 $conversion.keepFinishedSeconds }}
  template:
    metadata:
      {{- include "headrace.podMetadata" (list . "conversion" $conversion.pod "") | nindent 6 }}
    spec:
      {{- include "headrace.podSpec" (list . "conversion" $conversion) | nindent 6 }}
      restartPolicy: Never
      terminationGracePeriodSeconds: 5
      containers:
        - name: convert
          image: {{ include "headrace.image" (list . $conversion.image) }}
          imagePullPolicy: {{ .Values.images.pullPolicy }}
          command: [tini, --, python, -P, -m, registry.convert]
          # The result of the conversion, and never a piece of what it printed.
          terminationMessagePolicy: File
          env:
            - {name: HOME, value: /work}
            - {name: TMPDIR, value: /work}
            {{- include "headrace.variables" (list . $conversion.pod) | nindent 12 }}
          {{- with include "headrace.envFrom" (list $conversion.pod (include "headrace.credentials" (list . (list "store" "mlflow") $conversion))) }}
          {{- . | nindent 10 }}
          {{- end }}
          resources:
            {{- toYaml $conversion.resources | nindent 12 }}
          securityContext:
            {{- include "headrace.containerSecurity" . | nindent 12 }}
          volumeMounts:
            - {name: work, mountPath: /work}
            - {name: tmp, mountPath: /tmp}
            {{- with include "headrace.trustMount" . }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- with include "headrace.extraMounts" $conversion.pod }}
            {{- . | nindent 12 }}
            {{- end }}
      volumes:
        {{- with include "headrace.trustVolume" . }}
        {{- . | nindent 8 }}
        {{- end }}
        - name: work
          emptyDir: {sizeLimit: {{ $conversion.scratchSize }}}
        - name: tmp
          emptyDir: {sizeLimit: 256Mi}
        {{- with include "headrace.extraVolumes" $conversion.pod }}
        {{- . | nindent 8 }}
        {{- end }}
{{- end -}}
