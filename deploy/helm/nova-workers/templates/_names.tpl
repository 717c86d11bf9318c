{{/* Labels by which a component's pods are found. They never change, since selectors cannot. Takes root and component. */}}
{{- define "nova.selector" -}}
app.kubernetes.io/name: nova-workers
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: nova-workers
{{- end }}

{{/* Labels of an object of a component. */}}
{{- define "nova.labels" -}}
{{ include "nova.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* Labels of all pods of the release. */}}
{{- define "nova.allPods" -}}
app.kubernetes.io/name: nova-workers
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: nova-workers
{{- end }}

{{- define "nova.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The name of a secret. Takes root and name. */}}
{{- define "nova.secret" -}}
{{- index .root.Values.secrets.names .name | default (printf "%s-%s" .root.Release.Name .name) }}
{{- end }}

{{/* Whether the release makes its secrets itself, so that they are missing when its hooks run. */}}
{{- define "nova.makesSecrets" -}}
{{- if or .Values.trial.enabled (eq .Values.secrets.source "external") }}true{{ end }}
{{- end }}

{{/* The address of an ingress' host, if there is one. Takes the ingress and host. */}}
{{- define "nova.address" -}}
{{- if and .ingress.enabled .host }}https://{{ .host }}{{ end }}
{{- end }}

{{- define "nova.apiUrl" -}}
{{- .Values.api.publicUrl | default (include "nova.address" (dict "ingress" .Values.ingress "host" .Values.ingress.api.host)) }}
{{- end }}

{{- define "nova.consoleUrl" -}}
{{- .Values.console.publicUrl | default (include "nova.address" (dict "ingress" .Values.ingress "host" .Values.ingress.console.host)) }}
{{- end }}

{{/*
All groups of workers by component, as JSON: the common ones, and those of workerPools. A pool replaces fields of `worker`, of
`drain` and `autoscaling` single ones. Sprig's functions that merge would ignore 0, false and empty lists.
*/}}
{{- define "nova.workers" -}}
{{- $all := dict "worker" .Values.worker }}
{{- range $name, $own := .Values.workerPools }}
{{- $worker := deepCopy $.Values.worker }}
{{- range $field, $value := $own }}
{{- if has $field (list "drain" "autoscaling") }}
{{- range $single, $each := $value }}{{ $_ := set (index $worker $field) $single $each }}{{ end }}
{{- else }}
{{- $_ := set $worker $field $value }}
{{- end }}
{{- end }}
{{- $_ := set $all (printf "worker-%s" $name) $worker }}
{{- end }}
{{- toJson $all }}
{{- end }}

{{/* Refuses groups of workers with which a fleet cannot work. */}}
{{- define "nova.checkWorkers" -}}
{{- $served := list }}
{{- range $component, $worker := include "nova.workers" . | fromJson }}
{{- if gt $worker.drain.graceSeconds $worker.drain.deadlineSeconds }}
{{- fail (printf "%s: drain.graceSeconds is at most drain.deadlineSeconds" $component) }}
{{- end }}
{{- if gt $worker.autoscaling.minReplicas $worker.autoscaling.maxReplicas }}
{{- fail (printf "%s: autoscaling.minReplicas is at most autoscaling.maxReplicas" $component) }}
{{- end }}
{{- if not $worker.pool }}{{ $served = concat $served ($worker.queues | default (list "interactive" "background" "effects" "system")) }}{{ end }}
{{- end }}
{{- range list "interactive" "background" "effects" "system" }}
{{- if not (has . $served) }}{{ fail (printf "no workers without a pool serve the queue %s" .) }}{{ end }}
{{- end }}
{{- end }}

{{/* The settings of all processes. */}}
{{- define "nova.settings" -}}
{{- $name := .Release.Name }}
{{- $hosts := list (printf "%s-api" $name) (printf "%s-api.%s" $name .Release.Namespace) "*.svc" "*.svc.cluster.local" }}
{{- if and .Values.ingress.enabled .Values.ingress.api.host }}{{ $hosts = append $hosts .Values.ingress.api.host }}{{ end }}
{{- $settings := dict
  "NOVA_ENVIRONMENT" "production"
  "NOVA_HOME" "/tmp/nova"
  "NOVA_API__HOST" "0.0.0.0"
  "NOVA_ALLOWED_HOSTS" (concat $hosts .Values.api.allowedHosts | toJson)
  "NOVA_API__TRUSTED_PROXIES" (concat (ternary (list (printf "%s-console-pods" $name)) list .Values.console.enabled) .Values.api.trustedProxies | default list | toJson)
  "NOVA_TELEMETRY__LOG_FORMAT" "json"
  "NOVA_WORKER__HEARTBEAT_DIR" "/tmp/nova/heartbeats"
  "NOVA_WORKER__METRICS_HOST" "0.0.0.0"
  "NOVA_WORKER__METRICS_PORT" "9464"
}}
{{- with .Values.api.doors }}{{ $_ := set $settings "NOVA_DOORS" (toJson .) }}{{ end }}
{{- with include "nova.apiUrl" . }}{{ $_ := set $settings "NOVA_API__PUBLIC_URL" . }}{{ end }}
{{- with .Values.trustPools }}{{ $_ := set $settings "NOVA_WORKER__TRUST_POOLS" (toJson .) }}{{ end }}
{{- range $key, $value := .Values.settings }}{{ $_ := set $settings $key $value }}{{ end }}
{{- range $key, $value := $settings }}
{{ $key }}: {{ $value | quote }}
{{- end }}
{{- end }}
