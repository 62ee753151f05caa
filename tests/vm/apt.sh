# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # vm_cache is from lib.sh
# Packages of Debian's suites, from the mirror the machine itself uses, without installing any.

apt_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# The mirror of a suite, from the machine's own configuration: security has another than the rest.
mirror_of() {
	local want=main
	[[ $1 == *-security ]] && want=security
	# shellcheck disable=SC2016 # apt's variables, not the shell's
	apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
		awk -v want="$want" '$1 == "Debian" {
			security = $2 ~ /-security$/
			if (security == (want == "security")) { print $3; exit }
		}'
}

# An apt of its own for some suites: lists and cache apart from the machine's. Packages are those of the
# component main, or of $apt_component.
apt_options=()
apt_private() { # SUITE...
	local component=${apt_component:-main} suite uri
	local dir=$vm_cache/apt/$1
	[ "$component" = main ] || dir+=-$component
	mkdir -p "$dir"/{lists/partial,archives/partial,etc}
	: >"$dir/sources.list"
	for suite; do
		uri=$(mirror_of "$suite")
		if [ -z "$uri" ]; then
			[[ $suite == *-security ]] && continue
			echo "no Debian mirror in this machine's apt configuration"
			return 1
		fi
		echo "deb [signed-by=$apt_keyring] $uri $suite $component" >>"$dir/sources.list"
	done
	: >"$dir/status"
	apt_options=(-o "Dir::State=$dir" -o "Dir::State::lists=$dir/lists"
		-o "Dir::State::status=$dir/status" -o "Dir::Cache=$dir"
		-o "Dir::Cache::archives=$dir/archives" -o "Dir::Etc::sourcelist=$dir/sources.list"
		-o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null
		-o Dir::Etc::preferences=/dev/null -o APT::Install-Recommends=false
		-o APT::Sandbox::User=root -o Acquire::Languages=none)
	if ! apt-get "${apt_options[@]}" -qq update >"$dir/update.log" 2>&1 </dev/null; then
		tail -n 5 "$dir/update.log" >&2
		return 1
	fi
}

depends_of() { # PACKAGE
	local text
	text=$(apt-cache "${apt_options[@]}" --no-all-versions show "$1" 2>/dev/null)
	sed -n '/^Depends:/{s/^Depends: //;s/ *([^)]*)//g;s/, */\n/g;p}' <<<"$text"
}

exists() { apt-cache "${apt_options[@]}" show "$1" >/dev/null 2>&1; }

# Packages of a private apt, unpacked into DIR.
unpack() { # DIR PACKAGE...
	local dir=$1 tmp deb
	shift
	tmp=$(mktemp -d "$vm_cache/get.XXXXXX")
	(cd "$tmp" && apt-get "${apt_options[@]}" -qq download "$@" </dev/null)
	for deb in "$tmp"/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$dir" --keep-directory-symlink
	done
	rm -rf "$tmp"
}
