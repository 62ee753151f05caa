#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# SIGINT ends the commands of peerlane nvme cleanly, also while the drive does not answer.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"
set -m # so that background jobs do not ignore SIGINT

# opened: the controller is in use; its file has been made.
interrupt() {
	local signal=$1 want=$2 job status
	shift 2
	rm -f disk
	"$tool" nvme "$@" >out 2>err </dev/null &
	job=$!
	wait_for test -e disk
	sleep 0.3
	kill "-$signal" $job
	wait $job
	status=$?
	[ $status -eq "$want" ] || fail "status $status instead of $want: $*: $(cat err)"
	says err interrupted
}

drive=sim:file=$dir/disk,size=64M
interrupt INT 130 perf --seconds 600 --json "$drive"
json 'd["interrupted"] and d["rows"][0]["ios"] > 0'
interrupt TERM 143 latency --count 1G --json "$drive"
json 'd["interrupted"] and d["ios"] > 0'
# Nothing ever comes back: not even then does it wait for the time-out.
interrupt INT 130 read --timeout 3600 --count 1000 --output back "$drive,rule=hold opcode=read nth=1"
interrupt INT 130 perf --timeout 3600 --seconds 600 "$drive,rule=hold opcode=read"
interrupt INT 130 write --timeout 3600 --yes-destroy-data SIM0001 --pattern 1 "$drive,rule=hold opcode=write nth=9"
says err 'may be changed in part'
finish
