{{- define "kvkeep.image" -}}
{{ required "image.repository: where your registry has kvkeep's image" .Values.image.repository }}:
{{- .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Another config has another name, so that the pods are replaced. */}}
{{- define "kvkeep.configName" -}}
kvkeep-{{ .Values.config | sha256sum | trunc 10 }}
{{- end }}

{{- define "kvkeep.labels" -}}
app.kubernetes.io/name: kvkeep
{{- end }}
