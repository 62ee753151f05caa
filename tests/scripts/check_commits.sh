#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/check-commits names each commit that breaks a rule, and the rule; where it cannot look it says so.
set -u
source_dir=${PEERLANE_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
command -v git >/dev/null || { echo "git is not installed"; exit 77; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/peerlane-test.XXXXXX")
trap 'rm -rf "$dir"' EXIT
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_CEILING_DIRECTORIES=$dir
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
failures=0

fail() {
	echo "FAIL: $*"
	cat "$dir/out"
	failures=$((failures + 1))
}

# expect STATUS TEXT [START]: of the repository here; TEXT must be in what it says, or there is nothing.
expect() {
	local rc
	"$source_dir/scripts/check-commits" "${3:-$start}" >"$dir/out" 2>&1
	rc=$?
	[ $rc -eq "$1" ] || fail "status $rc instead of $1"
	if [ -z "$2" ]; then
		[ ! -s "$dir/out" ] || fail "it says something"
	else
		grep -qF -- "$2" "$dir/out" || fail "it does not say: $2"
		[ "$(wc -l <"$dir/out")" -eq 1 ] || fail "it says more than one thing"
	fi
}

commit() { git commit -q --allow-empty "$@"; }

# refused TEXT COMMIT-OPTIONS...: such a commit is refused, and goes again.
refused() {
	local text=$1
	shift
	commit "$@"
	expect 1 "$text"
	git reset -q --hard HEAD^
}

cd "$dir" || exit 1
expect 77 "not a git repository" HEAD
git init -q -b main repo
cd repo || exit 1
commit -m "anything at all, from before there was a rule, and long"
start=$(git rev-parse HEAD)
expect 0 ""

long=$(printf 'x%.0s' {1..49})
wide=$(printf 'word %.0s' {1..17})
commit -s -m "lib: mend it" -m "Because." -m "    $wide$wide" -m "https://example.org/$long$long"
commit -s -m "lib, tests/vm, README: $(printf 'ä%.0s' {1..36})" # 59 characters
expect 0 ""
refused "not signed off" -m "lib: mend it"
refused "not \"area: what it does\"" -s -m "Mend it"
refused "not \"area: what it does\"" -s -m "fixup! lib: mend it"
refused "not \"area: what it does\"" -s -m "lib:mend it"
refused "60 characters" -s -m "libraries: $long"
refused "more than 80 characters" -s -m "lib: mend it" -m "$wide"
refused "no empty line" --cleanup=verbatim -m $'lib: mend it\nbecause\n\nSigned-off-by: A <a@example.org>'
git checkout -q -b side
commit -s -m "lib: add"
git checkout -q main
commit -s -m "lib: remove"
git merge -q --no-ff -m "lib: merge" side
expect 1 "a merge"
git reset -q --hard HEAD^
expect 0 ""

git clone -q --depth 1 "file://$dir/repo" ../shallow
cd ../shallow || exit 1
expect 77 "commits are not checked"
[ $failures -eq 0 ]
