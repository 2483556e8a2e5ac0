{{- define "redeliver.name" -}}
{{- if contains "redeliver" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-redeliver" (.Release.Name | trunc 40 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "redeliver.account" -}}
{{ default (include "redeliver.name" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "redeliver.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}
{{- else }}{{ .repository }}:{{ required "image.tag is empty: which version of redeliver is it to be?" .tag }}
{{- end }}{{ end }}
{{- end }}

{{- define "redeliver.selector" -}}
app.kubernetes.io/name: redeliver
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "redeliver.labels" -}}
{{ include "redeliver.selector" . }}
{{- with .root.Values.image.tag }}
app.kubernetes.io/version: {{ . | trunc 63 | quote }}
{{- end }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 }}
{{- end }}

{{- /* What all pods share: no root, a read-only file system, no rights, no API token. */ -}}
{{- define "redeliver.pod" -}}
serviceAccountName: {{ include "redeliver.account" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "redeliver.container" -}}
image: {{ include "redeliver.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities: {drop: [ALL]}
resources: {{- toYaml .values.resources | nindent 2 }}
{{- with .root.Values.secret }}
envFrom:
  - secretRef: {name: {{ . | quote }}}
{{- end }}
{{- end }}

{{- /* The NetworkPolicy of a pod, if its values name peers. */ -}}
{{- define "redeliver.networkPolicy" -}}
{{- with .values.networkPolicy.from }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "redeliver.name" $.root }}-{{ $.component }}
  labels: {{- include "redeliver.labels" $ | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "redeliver.selector" $ | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    - from: {{- toYaml . | nindent 8 }}
      ports:
        - {port: {{ $.port }}}
{{- end }}
{{- end }}

{{- define "redeliver.podMonitor" -}}
{{- if .values.podMonitor }}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ include "redeliver.name" .root }}-{{ .component }}
  labels: {{- include "redeliver.labels" . | nindent 4 }}
spec:
  selector:
    matchLabels: {{- include "redeliver.selector" . | nindent 6 }}
  podMetricsEndpoints:
    - {port: {{ .port }}, path: /metrics, interval: 30s}
{{- end }}
{{- end }}

{{- /* Makes the garbage collector work harder before the limit kills the process. */ -}}
{{- define "redeliver.memory" -}}
{{- if dig "limits" "memory" "" .values.resources }}
- name: GOMEMLIMIT
  valueFrom:
    resourceFieldRef: {resource: limits.memory}
{{- end }}
{{- end }}

{{- define "redeliver.env" -}}
{{- with .Values.broker.url }}
- {name: REDELIVER_BROKER, value: {{ . | quote }}}
{{- end }}
{{- range $name, $value := .Values.env }}
- {name: {{ $name | quote }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
