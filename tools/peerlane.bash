# SPDX-License-Identifier: MIT
# Completion for bash: commands, options and their words come from the tool's own help.
# shellcheck shell=bash

# Options of a command, one a line: the name, then what it takes.
_peerlane_options() {
	"$@" 2>/dev/null | sed -n 's/^  \(--[a-z-]*\)\( \([^ ]*\)\)\?\( .*\)\?$/\1 \3/p'
}

# Commands that a help text lists.
_peerlane_commands() {
	"$@" 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\).*/\1/p'
}

# Processes that have a context open.
_peerlane_pids() {
	"$1" stat 2>/dev/null | awk '$1 ~ /^[0-9]+$/ { print $1 }' | sort -nu
}

_peerlane_words() {
	# shellcheck disable=SC2207
	COMPREPLY=($(compgen -W "$1" -- "$2"))
}

_peerlane() {
	local tool=$1 cur=$2 prev=$3 command=${COMP_WORDS[1]} takes
	local help=("$tool" help "$command")

	if ((COMP_CWORD == 1)); then
		_peerlane_words "$(_peerlane_commands "$tool" help) --help --version" "$cur"
		return
	fi
	if [[ $command == help ]]; then
		_peerlane_words "$(_peerlane_commands "$tool" "${COMP_WORDS[@]:1:COMP_CWORD-1}")" "$cur"
		return
	fi
	if [[ $command == bench && ${COMP_WORDS[2]} == gpu ]] && ((COMP_CWORD > 2)); then
		if ((COMP_CWORD == 3)); then
			_peerlane_words "$(_peerlane_commands "${help[@]}" gpu) --help" "$cur"
			return
		fi
		help+=(gpu "${COMP_WORDS[3]}")
	fi
	if [[ $command == nvme || $command == model ]]; then
		if ((COMP_CWORD == 2)); then
			_peerlane_words "$(_peerlane_commands "${help[@]}") --help" "$cur"
			return
		fi
		help+=("${COMP_WORDS[2]}")
	fi
	takes=$(_peerlane_options "${help[@]}" | sed -n "s/^$prev //p")
	case $takes in
	*'|'*) _peerlane_words "${takes//|/ }" "$cur" ;;
	FILE* | DIR*) compopt -o filenames && mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	?*) COMPREPLY=() ;;
	*)
		if [[ $cur == -* ]]; then
			_peerlane_words "$(_peerlane_options "${help[@]}" | cut -d ' ' -f 1)" "$cur"
		elif [[ $command == stat ]]; then
			_peerlane_words "$(_peerlane_pids "$tool")" "$cur"
		elif [[ $command == nvme ]]; then
			case ${COMP_WORDS[2]} in
			bind | unbind) takes=$(cd /sys/class/nvme 2>/dev/null && echo nvme*) ;;
			*) takes="sim: $("$tool" nvme list | sed -n 's/^ *address *//p')" ;;
			esac
			_peerlane_words "$takes" "$cur"
		else
			compopt -o filenames
			mapfile -t COMPREPLY < <(compgen -f -- "$cur")
			[[ $command == bench && gpu == "$cur"* ]] && ((COMP_CWORD == 2)) && COMPREPLY+=(gpu)
		fi
		;;
	esac
}

complete -F _peerlane peerlane
