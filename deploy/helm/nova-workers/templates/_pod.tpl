{{/* The metadata of a component's pods. Takes root, component and, for those that are scraped, metricsPort. */}}
{{- define "nova.podMetadata" -}}
labels:
  {{- include "nova.selector" . | nindent 2 }}
  {{- with .root.Values.pods.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/settings: {{ include "nova.settings" .root | sha256sum }}
  {{- if and .metricsPort .root.Values.monitoring.annotations }}
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ .metricsPort | quote }}
  prometheus.io/path: /metrics
  {{- end }}
  {{- with .root.Values.pods.annotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* What the specification of every pod begins with. Takes root, and `own` with placement of its own. */}}
{{- define "nova.pod" -}}
{{- $own := .own | default dict -}}
automountServiceAccountToken: false
{{- with .root.Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  seccompProfile: {{- toYaml ($own.seccompProfile | default (dict "type" "RuntimeDefault")) | nindent 4 }}
  {{- if .files }}
  # The volume's files belong to this group: the image's user.
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
{{- range $field := list "nodeSelector" "tolerations" "affinity" }}
{{- with index $own $field | default (index $.root.Values.pods $field) }}
{{ $field }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .root.Values.pods.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $own.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- end }}

{{/* Spreads the pods of a component. Takes root and component. */}}
{{- define "nova.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ .root.Values.pods.topologyKey }}
    whenUnsatisfiable: {{ .root.Values.pods.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "nova.selector" . | nindent 8 }}
{{- end }}

{{/* The image of every container of the fleet, and what it may do. */}}
{{- define "nova.container" -}}
image: {{ include "nova.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{ include "nova.confined" . }}
{{- end }}

{{- define "nova.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}

{{/* The sources of variables: the settings, and secrets by their names. Takes root and secrets. */}}
{{- define "nova.envFrom" -}}
envFrom:
  - configMapRef: { name: {{ .root.Release.Name }}-settings }
  {{- range .secrets }}
  - secretRef: { name: {{ include "nova.secret" (dict "root" $.root "name" .) }} }
  {{- end }}
{{- end }}

{{/* A disruption budget. Takes root and component. */}}
{{- define "nova.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .root.Release.Name }}-{{ .component }}
  labels:
    {{- include "nova.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "nova.selector" . | nindent 6 }}
{{- end }}

{{/* Scales a deployment by CPU. Takes root, component and scaling. */}}
{{- define "nova.scaledByCpu" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .root.Release.Name }}-{{ .component }}
  labels:
    {{- include "nova.labels" . | nindent 4 }}
spec:
  scaleTargetRef: { apiVersion: apps/v1, kind: Deployment, name: {{ .root.Release.Name }}-{{ .component }} }
  minReplicas: {{ .scaling.minReplicas }}
  maxReplicas: {{ .scaling.maxReplicas }}
  metrics:
    - type: Resource
      resource: { name: cpu, target: { type: Utilization, averageUtilization: {{ .scaling.cpuPercent }} } }
{{- end }}
