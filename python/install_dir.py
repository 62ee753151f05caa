# SPDX-License-Identifier: MIT
"""Where packages are installed under a prefix: install_dir.py PREFIX"""

import sys
import sysconfig

prefix = sys.argv[1]
version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
if "deb_system" not in sysconfig.get_scheme_names():
    folder = f"{version}/site-packages"
elif prefix == "/usr":
    folder = "python3/dist-packages"
else:
    folder = f"{version}/dist-packages"
print(f"{prefix}/lib/{folder}")
