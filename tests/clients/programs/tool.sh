#!/bin/sh
# `gearman -w` of the tests runs this for one job: tool.sh FUNCTION, with the payload as its input.
case $1 in
reverse) rev | tr -d '\n' ;;
parts) printf 'first\nsecond\nparts:' && cat ;;
fail) cat >/dev/null && exit 1 ;;
wait)
    path=$(cat)
    until [ -e "$path" ]; do sleep 0.05; done
    printf opened
    ;;
note)
    payload=$(tr -d '\0')
    echo "${payload#* }" >>"${payload%% *}"
    printf %s "${payload#* }"
    ;;
esac
