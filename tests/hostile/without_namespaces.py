"""A command → the same where the system refuses user namespaces and the user has no rights, as in most containers.

The namespace that this makes for itself is the last: there may be none within it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gonogo.guest import walls


def main() -> None:
    """Leave rights and namespaces, and become the command."""
    user, group = os.getuid(), os.getgid()
    walls._call("unshare", walls.NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    Path("/proc/sys/user/max_user_namespaces").write_text("0")
    walls.drop_rights()
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
