#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The manual page and --help list the same options, for each command.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"
page=$source_dir/man/peerlane.1

# A command may have two words.
in_help() {
	# shellcheck disable=SC2086 # several words
	"$tool" help $1 | sed -n 's/^  \(--[a-z-]*\).*/\1/p' | grep -vx -- --help | sort
}

in_page() {
	awk -v section="${1^^}" '/^\.Sh/ { on = substr($0, 5) == section }
		on && $1 == ".It" && $2 == "Fl" { print "-" $3 }' "$page" | sort
}

for command in check bench cp stat 'nvme bind'; do
	in_help "$command" >from_help
	in_page "$command" >from_page
	[ -s from_help ] || fail "no options in the help of $command"
	diff from_help from_page >difference || fail "$command: < in --help, > in the page: $(cat difference)"
done

# The exit statuses of both are the same, too.
for command in check bench cp stat 'nvme bind' 'nvme unbind'; do
	# shellcheck disable=SC2086 # several words
	"$tool" help $command | sed -n '/^Exit status:/,$s/^  \([0-9]*\)  .*/\1/p' >from_help
	awk -v name="$command" '$1 == ".Sh" { on = /EXIT STATUS/ }
		on && $1 == ".Cm" { now = substr($0, 5); sub(/ :$/, "", now) } on && $1 == ".It" && now == name { print $2 }' \
		"$page" >from_page
	diff from_help from_page >difference || fail "$command exit status: $(cat difference)"
done

if command -v mandoc >/dev/null; then
	mandoc -Tlint -Wwarning "$page" >out || fail "mandoc: $(cat out)"
fi
finish
