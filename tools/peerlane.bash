# SPDX-License-Identifier: MIT
# Completion for bash: commands, options and their words come from the tool's own help.
# shellcheck shell=bash

# Options of a command, one a line: the name, then what it takes.
_peerlane_options() {
	"$1" help "$2" 2>/dev/null | sed -n 's/^  \(--[a-z-]*\)\( \([^ ]*\)\)\?\( .*\)\?$/\1 \3/p'
}

_peerlane_words() {
	# shellcheck disable=SC2207
	COMPREPLY=($(compgen -W "$1" -- "$2"))
}

_peerlane() {
	local tool=$1 cur=$2 prev=$3 command=${COMP_WORDS[1]} takes

	if ((COMP_CWORD == 1)) || [[ $command == help ]]; then
		_peerlane_words "$("$tool" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\).*/\1/p'
			((COMP_CWORD == 1)) && echo --help --version)" "$cur"
		return
	fi
	takes=$(_peerlane_options "$tool" "$command" | sed -n "s/^$prev //p")
	case $takes in
	*'|'*) _peerlane_words "${takes//|/ }" "$cur" ;;
	FILE*) compopt -o filenames && mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	?*) COMPREPLY=() ;;
	*)
		if [[ $cur == -* ]]; then
			_peerlane_words "$(_peerlane_options "$tool" "$command" | cut -d ' ' -f 1)" "$cur"
		elif [[ $command == stat ]]; then
			_peerlane_words "$(cd /proc && echo [0-9]*)" "$cur"
		else
			compopt -o filenames
			mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		fi
		;;
	esac
}

complete -F _peerlane peerlane
