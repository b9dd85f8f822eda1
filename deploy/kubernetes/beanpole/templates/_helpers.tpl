{{- /* Names, labels, and the list of members. */ -}}

{{- /* The release's name, with the chart's where that says nothing of it. Pods are this and a
number, and so are the ids of the nodes. */ -}}
{{- define "beanpole.name" -}}
{{- if contains "." .Release.Name }}
{{- fail (printf "the release's name %q has a dot, which names of services may not have" .Release.Name) }}
{{- end }}
{{- if regexMatch "^[0-9]" .Release.Name }}
{{- fail (printf "the release's name %q begins with a digit, with which names of services may not begin" .Release.Name) }}
{{- end }}
{{- /* 45: with "-report" or "-backup" it is the name of a CronJob, which has at most 52 characters. */}}
{{- if contains "beanpole" .Release.Name }}{{ .Release.Name | trunc 45 | trimAll "-" }}
{{- else }}{{ printf "%s-beanpole" (.Release.Name | trunc 36 | trimAll "-") }}{{ end }}
{{- end }}

{{- define "beanpole.selector" -}}
app.kubernetes.io/name: beanpole
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "beanpole.labels" -}}
{{ include "beanpole.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "beanpole.image" -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}
{{- else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* A pod by its name in the headless service, which stays when its address changes. Without the
namespace, so that an overlay may set another: resolvers add that of the pod. */ -}}
{{- define "beanpole.hosts" -}}
{{- $name := include "beanpole.name" . -}}
{{- $hosts := list -}}
{{- range $number := until (int .Values.replicas) -}}
{{- $hosts = append $hosts (printf "%s-%d.%s-headless" $name $number $name) -}}
{{- end -}}
{{- join "," $hosts -}}
{{- end }}

{{- /* ID=PEER/GRPC for each pod. */ -}}
{{- define "beanpole.members" -}}
{{- $members := list -}}
{{- range $host := splitList "," (include "beanpole.hosts" .) -}}
{{- $id := index (splitList "." $host) 0 -}}
{{- $members = append $members (printf "%s=%s:11310/%s:11320" $id $host $host) -}}
{{- end -}}
{{- join "," $members -}}
{{- end }}

{{- define "beanpole.grpcAddresses" -}}
{{- $addresses := list -}}
{{- range $host := splitList "," (include "beanpole.hosts" .) -}}
{{- $addresses = append $addresses (printf "%s:11320" $host) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end }}

{{- /* Where the `beanpole` command finds its certificate, below a folder. */ -}}
{{- define "beanpole.commandTls" -}}
- name: BEANPOLE_TLS_CA
  value: {{ . }}/ca.crt
- name: BEANPOLE_TLS_CERTIFICATE
  value: {{ . }}/tls.crt
- name: BEANPOLE_TLS_KEY
  value: {{ . }}/tls.key
{{- end }}

{{- define "beanpole.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "beanpole.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}
