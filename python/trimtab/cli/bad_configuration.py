"""The error of bad input, for every command that reads a configuration."""

from __future__ import annotations

import click


class BadConfigurationError(click.ClickException):
    """A configuration breaks a rule. The exit code of bad input; the message needs no usage line in front of it."""

    exit_code = 2
