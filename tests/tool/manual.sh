#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The manual page and --help list the same options, for each command.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

# The page of a command.
page_of() {
	case $1 in
	'nvme bind' | 'nvme unbind') page=peerlane.1 ;;
	'bench gpu'*) page=peerlane-bench-gpu.1 ;;
	nvme*) page=peerlane-nvme.1 ;;
	model*) page=peerlane-model.1 ;;
	prove) page=peerlane-prove.1 ;;
	*) page=peerlane.1 ;;
	esac
	page=$source_dir/man/$page
}
commands=(check bench 'bench gpu ring' 'bench gpu read' 'bench gpu file' 'bench gpu array'
	'bench gpu mixed' 'bench gpu sum' 'bench gpu scan' 'bench gpu bfs' cp stat 'nvme bind' 'nvme unbind' 'nvme list' 'nvme identify' 'nvme read'
	'nvme write' 'nvme verify' 'nvme latency' 'nvme perf' 'model ls' 'model load' 'model verify' 'model cp' prove)

# A command may have two words.
in_help() {
	# shellcheck disable=SC2086 # several words
	"$tool" help $1 | sed -n 's/^  \(--[a-z-]*\).*/\1/p' | grep -vx -- --help | sort
}

in_page() {
	awk -v section="${1^^}" '/^\.Sh/ { on = substr($0, 5) == section }
		on && $1 == ".It" && $2 == "Fl" { print "-" $3 }' "$page" | sort
}

for command in "${commands[@]}"; do
	page_of "$command"
	in_help "$command" >from_help
	in_page "$command" >from_page
	[ -s from_help ] || [ "$command" = "nvme unbind" ] || fail "no options in the help of $command"
	diff from_help from_page >difference || fail "$command: < in --help, > in the page: $(cat difference)"
done

# The exit statuses of both are the same, too.
for command in "${commands[@]}"; do
	page_of "$command"
	# shellcheck disable=SC2086 # several words
	"$tool" help $command | sed -n '/^Exit status:/,$s/^  \([0-9]*\)  .*/\1/p' >from_help
	awk -v name="$command" '$1 == ".Sh" { on = /EXIT STATUS/ }
		on && $1 == ".Cm" { now = substr($0, 5); sub(/ :$/, "", now) } on && $1 == ".It" && now == name { print $2 }' \
		"$page" >from_page
	diff from_help from_page >difference || fail "$command exit status: $(cat difference)"
done

if command -v mandoc >/dev/null; then
	mandoc -Tlint -Wwarning "$source_dir"/man/peerlane{,-bench-gpu,-model,-nvme,-prove}.1 "$source_dir"/man/peerlane-json.5 >out || fail "mandoc: $(cat out)"
fi
finish
