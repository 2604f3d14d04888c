"""Environment and AWS's own files → how a store is reached: endpoint, region and credentials.

The variables and files are those of every client of S3. Secrets are in no repr, so that no message shows them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from gonogo.errors import InputError

ATTEMPTS = 9
"""How often a request is tried, for some seconds in all."""
NO_SOURCE = "no file and no variable"
"""Where credentials are from that there are not."""
FROM_ELSEWHERE = (
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"
)  # fmt: skip
"""Variables by which the client gets credentials by itself."""


@dataclass(frozen=True)
class Settings:
    """How to reach a store."""

    endpoint: str | None
    region: str
    source: str
    """Where the credentials are from, in words."""
    attempts: int = ATTEMPTS
    key_id: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """What the environment says; where it says nothing, the profile."""
    name = environ.get("AWS_PROFILE") or environ.get("AWS_DEFAULT_PROFILE") or "default"
    profile, file = _read_profile(name, environ)
    if environ.get("AWS_ACCESS_KEY_ID"):
        source = "the environment"
        keys = [environ.get(f"AWS_{what}") for what in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")]
    else:
        keys = [profile.get(f"aws_{what}") for what in ("access_key_id", "secret_access_key", "session_token")]
        source = f"profile {name} in {file}" if keys[0] else NO_SOURCE
        if not keys[0] and "AWS_PROFILE" in environ:
            raise InputError(
                f"profile {name} (AWS_PROFILE) has no aws_access_key_id in {file}. Choose another; of one that "
                "signs in otherwise, set the variables: aws configure export-credentials --format env"
            )
    if keys[0] and not keys[1]:
        raise InputError(f"credentials from {source} have no secret: set AWS_SECRET_ACCESS_KEY too")
    if not keys[0] and environ.get("AWS_SECRET_ACCESS_KEY"):
        raise InputError("credentials from the environment have no key: set AWS_ACCESS_KEY_ID, too")
    if not keys[0] and any(environ.get(variable) for variable in FROM_ELSEWHERE):
        source = "the machine's own role"
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or profile.get("endpoint_url")
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or profile.get("region")
    return Settings(
        _check_endpoint(endpoint), region or "us-east-1", source, _read_attempts(environ), keys[0], keys[1], keys[2]
    )


def _check_endpoint(endpoint: str | None) -> str | None:
    if not endpoint:
        return None
    try:
        parts = urlsplit(endpoint)
        is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        is_sound = False
    if not is_sound:  # not shown: what it holds may be a password
        raise InputError(
            "AWS_ENDPOINT_URL is no address of a store. Give http:// or https:// and a host, without any password"
        )
    return endpoint.rstrip("/")


def _read_attempts(environ: Mapping[str, str]) -> int:
    text = environ.get("AWS_MAX_ATTEMPTS") or str(ATTEMPTS)
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise InputError(f"AWS_MAX_ATTEMPTS is {text!r}; give a number from 1 to 100")
    return int(text)


def _read_profile(name: str, environ: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """What the two files say of a profile, and the file that credentials should be in."""
    home = Path(environ.get("HOME") or "~").expanduser()
    credentials = Path(environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials").expanduser()
    config = Path(environ.get("AWS_CONFIG_FILE") or home / ".aws" / "config").expanduser()
    found: dict[str, str] = {}
    for path, section in ((config, name if name == "default" else f"profile {name}"), (credentials, name)):
        parser = ConfigParser(interpolation=None, strict=False)
        try:
            parser.read(path, encoding="utf-8")
        except (ConfigError, OSError, UnicodeDecodeError):  # their words would show what stands there
            raise InputError(
                f"{path} cannot be read as a file of profiles. Mend it, or set AWS_ACCESS_KEY_ID"
            ) from None
        if parser.has_section(section):
            found |= dict(parser[section])
    return found, str(credentials)
