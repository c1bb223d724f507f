{{- define "godwit.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "godwit.labels" -}}
{{ include "godwit.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "godwit.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Image of one of .Values.image; takes a list of the root and the image. */}}
{{- define "godwit.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{ printf "%s:%s" $image.repository ($image.tag | default $root.Chart.AppVersion) }}
{{- end }}

{{- define "godwit.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "godwit.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* `https` or `http`, as the service speaks. */}}
{{- define "godwit.scheme" -}}
{{- if .Values.tls.secret }}https{{ else }}http{{ end -}}
{{- end }}

{{/* Where database and key are, for `serve` and `migrate`. */}}
{{- define "godwit.databaseArgs" -}}
- --database-file=/run/godwit/database/url
{{- /* Files of volumes can be read by the group, which a key file may not. */}}
- --key-command=cat /run/godwit/sealing-key/key
{{- end }}

{{- define "godwit.secretMounts" -}}
- {name: database, mountPath: /run/godwit/database, readOnly: true}
- {name: sealing-key, mountPath: /run/godwit/sealing-key, readOnly: true}
- {name: settings, mountPath: /etc/godwit/settings, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- end }}
