import os


def tells_environment(x):
    raise RuntimeError(os.environ.get("NVIDIA_TF32_OVERRIDE", "not set"))


def tells_markup(x):
    """Raises [red]text[/red] that a terminal might take for markup."""
    raise RuntimeError("expected [bold]x[/bold] :smile: [/nothing]")
